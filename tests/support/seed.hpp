#pragma once
// Where random tests begin.

#include <cstdlib>
#include <random>

namespace testing {

/// Another one in every run; SHARDWISE_TEST_SEED repeats one.
inline unsigned seed() {
  const char* given = std::getenv("SHARDWISE_TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
                          : std::random_device{}();
}

}  // namespace testing
