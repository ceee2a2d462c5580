// Calls each part, and trains nothing.
#include <cstdio>

#include "shardwise/version.hpp"
#include "use_parts.hpp"

int main() {
  std::printf("shardwise %s\n", SHARDWISE_VERSION);
  return use_parts() ? 0 : 1;
}
