#pragma once
// Numbers that may be infinite or none, against those that they should be.

#include <cmath>

namespace testing {

/// Whether a number is the expected one: NaN, 0 and infinity exactly, others up to `bound`.
inline bool is_as_expected(double number, double expected, double bound) {
  if (std::isnan(expected)) return std::isnan(number);
  if (expected == 0 || std::isinf(expected)) return number == expected;
  return std::abs(number - expected) <= bound;
}

}  // namespace testing
