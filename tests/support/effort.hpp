#pragma once
// How much tests do. With SHARDWISE_TEST_FEWER in the environment it is a part, for tools like
// compute-sanitizer, under which a program takes many times as long.

#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace testing {

inline bool fewer() { return std::getenv("SHARDWISE_TEST_FEWER") != nullptr; }

/// How many of so many random cases to run: all, or a tenth.
inline int cases(int all) { return fewer() ? (all + 9) / 10 : all; }

/// At which of these rank counts: all, or 1 and 3.
inline std::vector<int> at_ranks(std::initializer_list<int> all) {
  return fewer() ? std::vector<int>{1, 3} : std::vector<int>(all);
}

}  // namespace testing
