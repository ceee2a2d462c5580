#pragma once
// The product of two short rows, where the sum of its lanes takes as long as the products.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::onednn {

///@{
/// Neighbouring numbers. A compiler makes as many vectors of each as the processor needs.
using Floats4 [[gnu::vector_size(16)]] = float;
using Floats16 [[gnu::vector_size(64)]] = float;
using Words16 [[gnu::vector_size(64)]] = std::uint32_t;
using UpperHalves16 [[gnu::vector_size(32)]] = std::uint16_t;
///@}

///@{
/// to = 16 neighbouring numbers.
[[gnu::always_inline]] inline void load(const float* from, Floats16& to) {
  std::memcpy(&to, from, sizeof to);
}
[[gnu::always_inline]] inline void load(const bf16* from, Floats16& to) {
  UpperHalves16 halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words16 words = __builtin_convertvector(halves, Words16) << 16;
  std::memcpy(&to, &words, sizeof to);
}
///@}

/// The sum of all lanes, of which halves are added until one is left.
[[gnu::always_inline]] inline float sum_of_lanes(const Floats16& lanes) {
  std::array<Floats4, 4> quarters;
  std::memcpy(quarters.data(), &lanes, sizeof lanes);
  const Floats4 sums = (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

/// Σ a[i] b[i]. Written as vectors, since no compiler makes good ones of loops over 16 lanes whose
/// sums are added at the end: `dot` takes twice the time for rows of 64 numbers.
template <class T>
[[gnu::always_inline]] inline float vector_dot(const float* a, const T* b, std::size_t count) {
  Floats16 sums{};
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    Floats16 x, y;
    load(a + i, x);
    load(b + i, y);
    sums += x * y;
  }
  float sum = sum_of_lanes(sums);
  for (; i < count; ++i) sum += a[i] * static_cast<float>(b[i]);
  return sum;
}

}  // namespace shardwise::detail::onednn
