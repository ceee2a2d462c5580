#pragma once
// No figure for a wrong result.

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace bench {

/// Exits unless n numbers are the exact ones up to the rounding of sums of `terms` products of
/// numbers in [-1, 1).
inline void require_equal(const char* what, const float* exact, const float* got, std::size_t n,
                          std::size_t terms) {
  const double bound = 8 * 1.2e-7 * std::sqrt(static_cast<double>(terms)) * 4;
  for (std::size_t i = 0; i < n; ++i) {
    const double e = static_cast<double>(exact[i]);
    const double g = static_cast<double>(got[i]);
    if (std::abs(e - g) <= bound * (1 + std::abs(e))) continue;
    std::fprintf(stderr, "%s: element %zu is %g, not %g\n", what, i, g, e);
    std::exit(1);
  }
}

}  // namespace bench
