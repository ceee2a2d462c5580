#pragma once
// A square of 16 x 16 numbers in vectors, transposed.

#include <array>
#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise::detail::onednn {

/// Transposes 16 vectors of 16 numbers. Each of four rounds interleaves the vectors i and i + 8, so
/// that of the eight bits of a number's place, the first one becomes the last one.
template <class Vector>
[[gnu::always_inline]] inline void transpose(std::array<Vector, 16>& vectors) {
  for (int round = 0; round < 4; ++round) {
    const std::array<Vector, 16> before = vectors;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) {
      vectors[2 * i] = __builtin_shufflevector(before[i], before[i + 8], 0, 16, 1, 17, 2, 18, 3, 19,
                                               4, 20, 5, 21, 6, 22, 7, 23);
      vectors[2 * i + 1] = __builtin_shufflevector(before[i], before[i + 8], 8, 24, 9, 25, 10, 26,
                                                   11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
  }
}

}  // namespace shardwise::detail::onednn
