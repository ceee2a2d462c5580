#include <cstdio>

#include "other.hpp"
#include "shardwise/shardwise.hpp"

// Two translation units include everything: a function that is not inline would be there twice.
int main() {
  const bool agree = version_of_other() == SHARDWISE_VERSION;
  std::printf("shardwise %s\n", SHARDWISE_VERSION);
  return agree ? 0 : 1;
}
