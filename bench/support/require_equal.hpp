#pragma once
// No figure for a wrong result.

#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/core/dtype.hpp"
#include "support/interleaved.hpp"

namespace bench {

/// Throws std::runtime_error unless n numbers are the exact ones up to the rounding of sums of
/// `terms` products of numbers in [-1, 1), which bf16 rounds once more in the end.
template <class T>
void require_equal(const std::string& what, const T* exact, const T* got, std::size_t n,
                   std::size_t terms) {
  using Sum = shardwise::accumulate_t<T>;
  const double of_sum = 32 * static_cast<double>(std::numeric_limits<Sum>::epsilon()) *
                        std::sqrt(static_cast<double>(terms));
  const double of_result = std::is_same_v<T, Sum> ? 0 : 0x1p-7;
  for (std::size_t i = 0; i < n; ++i) {
    const double e = static_cast<double>(exact[i]);
    const double g = static_cast<double>(got[i]);
    if (std::abs(e - g) <= of_sum * (1 + std::abs(e)) + of_result * std::abs(e)) continue;
    throw std::runtime_error(what + ": element " + std::to_string(i) + " is " + std::to_string(g) +
                             ", not " + std::to_string(e));
  }
}

/// Runs every candidate and throws std::runtime_error unless each leaves the exact numbers in
/// `result`.
template <class T>
void require_each(const std::vector<Candidate>& candidates, const std::vector<T>& exact,
                  std::vector<T>& result, std::size_t terms) {
  for (const Candidate& candidate : candidates) {
    result.assign(result.size(), static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    candidate.run();
    require_equal(candidate.name, exact.data(), result.data(), result.size(), terms);
  }
}

}  // namespace bench
