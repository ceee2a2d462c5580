#include <cstdio>

#include "shardwise/version.hpp"

int main() { std::printf("shardwise %s\n", SHARDWISE_VERSION); }
