#pragma once
// No figure for a wrong result: each function throws std::runtime_error for one.

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

/// Unless each got(i) is exact(i), up to `absolute` and a share `relative` of it.
template <class Exact, class Got>
void require_within(const std::string& what, std::size_t n, Exact exact, Got got, double absolute,
                    double relative) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto e = static_cast<double>(exact(i)), g = static_cast<double>(got(i));
    if (std::abs(e - g) <= absolute + relative * std::abs(e)) continue;
    throw std::runtime_error(what + ": element " + std::to_string(i) + " is " + std::to_string(g) +
                             ", not " + std::to_string(e));
  }
}

/// Unless n numbers are the exact ones up to the rounding of sums of `terms` products of numbers in
/// [-1, 1), which bf16 rounds once more in the end.
template <class T>
void require_equal(const std::string& what, const T* exact, const T* got, std::size_t n,
                   std::size_t terms) {
  using Sum = shardwise::accumulate_t<T>;
  const double of_sum = 32 * static_cast<double>(std::numeric_limits<Sum>::epsilon()) *
                        std::sqrt(static_cast<double>(terms));
  const double of_result = std::is_same_v<T, Sum> ? 0 : 0x1p-7;
  require_within(
      what, n, [=](std::size_t i) { return exact[i]; }, [=](std::size_t i) { return got[i]; },
      of_sum, of_sum + of_result);
}

/// Runs every candidate. Unless each leaves the exact numbers in `result`.
template <class T>
void require_each(const std::vector<Candidate>& candidates, const std::vector<T>& exact,
                  std::vector<T>& result, std::size_t terms) {
  for (const Candidate& candidate : candidates) {
    result.assign(result.size(), static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    candidate.run();
    require_equal(candidate.name, exact.data(), result.data(), result.size(), terms);
  }
}

/// Unless got(i) is exact[i], up to the rounding of T in a few steps.
template <class T, class Got>
void require_near(const std::string& what, const std::vector<double>& exact, Got got) {
  double squares = 0;
  for (const double value : exact) squares += value * value;
  const double usual = std::sqrt(squares / static_cast<double>(exact.size()));
  const double rounding = sizeof(T) == 2 ? 0x1p-6 : 0x1p-15;
  require_within(
      what, exact.size(), [&](std::size_t i) { return exact[i]; }, got, rounding * usual, rounding);
}

/// Unless n numbers have changed from `before` to the exact ones, up to a share of the change as a
/// whole. Of single ones that cannot be asked: AdamW takes little but a gradient's sign, and which
/// of two equal elements is the larger one is a matter of rounding.
template <class T>
void require_change(const std::string& what, const T* before, const float* exact, const float* got,
                    std::size_t n, double share = 1e-3) {
  double change = 0, difference = 0;
  for (std::size_t i = 0; i < n; ++i) {
    change += std::pow(static_cast<double>(exact[i] - static_cast<float>(before[i])), 2);
    difference += std::pow(static_cast<double>(exact[i] - got[i]), 2);
  }
  const double differs = std::sqrt(difference / change);
  if (differs <= share) return;
  throw std::runtime_error(what + ": another change than it must be, by a share of " +
                           std::to_string(differs));
}

}  // namespace bench
