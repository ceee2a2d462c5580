#pragma once
// Extents and sizes from outside, such as files, which may be any numbers.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// "[2, 3]".
inline std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text;
  for (const std::uint64_t extent : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return '[' + text + ']';
}

/// a * b, or nothing if it overflows.
constexpr std::optional<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b) {
  if (b != 0 && a > UINT64_MAX / b) return std::nullopt;
  return a * b;
}

/// The product of `first` and all extents, or nothing if an intermediate product overflows.
inline std::optional<std::uint64_t> checked_product(std::uint64_t first,
                                                    const std::vector<std::uint64_t>& extents) {
  std::optional<std::uint64_t> product = first;
  for (const std::uint64_t extent : extents) {
    if (product) product = checked_product(*product, extent);
  }
  return product;
}

}  // namespace shardwise::detail
