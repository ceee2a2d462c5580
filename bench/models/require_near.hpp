#pragma once
// No figure for a wrong result, held against numbers in double or against a whole step.

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

/// Throws unless got(i) is exact[i], up to the rounding of T in a few steps.
template <class T, class Got>
void require_near(const std::string& what, const std::vector<double>& exact, Got got) {
  double squares = 0;
  for (const double value : exact) squares += value * value;
  const double usual = std::sqrt(squares / static_cast<double>(exact.size()));
  const double rounding = sizeof(T) == 2 ? 0x1p-6 : 0x1p-15;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto value = static_cast<double>(static_cast<float>(got(i)));
    if (std::abs(value - exact[i]) <= rounding * (usual + std::abs(exact[i]))) continue;
    throw std::runtime_error(what + ": element " + std::to_string(i) + " is " +
                             std::to_string(value) + ", not " + std::to_string(exact[i]));
  }
}

/// Throws unless n numbers have changed from `before` to the exact ones, up to a share of the
/// change as a whole. Of single ones that cannot be asked: AdamW takes little but a gradient's
/// sign, and which of two equal elements is the larger one is a matter of rounding.
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
