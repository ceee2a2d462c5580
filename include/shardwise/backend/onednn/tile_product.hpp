#pragma once
// The product of many rows of bf16 with a weight by tiles of the processor (AMX), which read the
// weight as it lies.

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/onednn/forward.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/session.hpp"
#include "shardwise/backend/onednn/transpose.hpp"
#include "shardwise/backend/onednn/vector_dot.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::onednn {

/// The 16 floats become bf16 in the upper halves of their words, rounded to even; lower halves are
/// undefined. A NaN is not rounded, since a carry could make it another number.
[[gnu::always_inline]] inline void round_to_upper_halves(const float* from, Words16& to) {
  Floats16 numbers;
  load(from, numbers);
  Words16 bits;
  std::memcpy(&bits, from, sizeof bits);
  to = numbers != numbers ? bits | 0x400000U : bits + 0x7fffU + ((bits >> 16) & 1U);
}

/// Shapes of tiles as the processor reads them: all have 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t first_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

inline constexpr TileShapes tile_shapes;

/// The inputs of a strip of 32 outputs and of 16 or 32 rows.
struct TileStrip {
  std::size_t in;
  const bf16* w;        ///< [32, in]
  const bf16* w_rest;   ///< [32, 32]: the inputs after the last whole 32, then zeros
  const bf16* x;        ///< of each 16 rows, packed as TileProduct says
  std::size_t x_block;  ///< from 16 rows to the next

  ///@{
  /// Outputs [soon_outputs, in] of the next strip, read into a cache meanwhile.
  const bf16* soon;
  std::size_t soon_outputs;
  ///@}
};

///@{
/// Adds the products of 32 inputs. Tiles 0 to 3 are sums of 16 outputs and 16 rows; 4 and 5 hold
/// the weight, 6 and 7 the rows.
template <std::size_t Blocks>
[[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void add_tiles(
    const bf16* w, std::size_t stride, const bf16* x, std::size_t x_block) {
  const std::size_t bytes = stride * sizeof(bf16);
  _tile_loadd(4, w, bytes);
  _tile_loadd(6, x, 64);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (Blocks == 2) {
    _tile_loadd(7, x + x_block, 64);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_loadd(5, w + 16 * stride, bytes);
  _tile_dpbf16ps(2, 5, 6);
  if constexpr (Blocks == 2) _tile_dpbf16ps(3, 5, 7);
}

/// g++ does not know that loads of tiles read memory and stores write it. So it may not move, or
/// leave out, writes and reads of tensors across this.
[[gnu::always_inline]] inline void show_memory_to_tiles() { asm volatile("" ::: "memory"); }

/// sums[32, 16 Blocks] = the products of a strip.
template <std::size_t Blocks>
[[gnu::target("amx-tile,amx-bf16")]] void multiply_tiles(const TileStrip& of, float* sums) {
  show_memory_to_tiles();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  std::size_t i = 0;
  for (; i + 32 <= of.in; i += 32) {
    add_tiles<Blocks>(of.w + i, of.in, of.x + i * 16, of.x_block);
    for (std::size_t o = 0; o < of.soon_outputs; ++o)
      __builtin_prefetch(of.soon + o * of.in + i, 0, 2);
  }
  if (i < of.in) add_tiles<Blocks>(of.w_rest, 32, of.x + i * 16, of.x_block);
  constexpr std::size_t rows = 16 * Blocks;
  _tile_stored(0, sums, rows * sizeof(float));
  _tile_stored(2, sums + 16 * rows, rows * sizeof(float));
  if constexpr (Blocks == 2) {
    _tile_stored(1, sums + 16, rows * sizeof(float));
    _tile_stored(3, sums + 16 * rows + 16, rows * sizeof(float));
  }
  show_memory_to_tiles();
}

[[gnu::target("amx-tile")]] inline void begin_tiles() { _tile_loadconfig(&tile_shapes); }
[[gnu::target("amx-tile")]] inline void end_tiles() { _tile_release(); }
///@}

/// A forward in bf16.
///
/// A tile multiplies rows of one matrix with pairs of rows of the other one. As w xᵀ, the weight is
/// the first one and is read in place; x is packed: 16 rows after another, of each 16 pairs of
/// inputs after another, [pair][row][2], with zeros at the ends. Sums of 32 outputs are transposed
/// in the nearest cache. Many rows are packed and multiplied in parts that a cache holds. On one
/// thread, where `is_possible`.
struct TileProduct {
  Forward<bf16> of;

  /// Whether it is faster than the library's products, plain and packed, for weights that are in no
  /// cache: seen on a Xeon, see bench/log.md, "Few rows". The library has asked the system for
  /// tiles.
  static bool gains(std::size_t out) { return has_vectors && is_possible(out); }

  /// Whether the processor and the weight allow it.
  static bool is_possible(std::size_t out) { return out >= strip && multiplies_tiles(); }

  void run(Session& session) const {
    const std::size_t block = 16 * ((of.in + 31) / 32 * 32);
    const std::size_t most = std::max<std::size_t>(1, cached / block / sizeof(bf16) / 2) * 32;
    const std::size_t blocks = (std::min(of.rows, most) + 15) / 16;
    auto* const packed =
        static_cast<bf16*>(session.scratch().reserve(blocks * block * sizeof(bf16)));
    begin_tiles();
    for (std::size_t row = 0; row < of.rows; row += most)
      put_rows({row, std::min(most, of.rows - row)}, packed, block);
    end_tiles();
  }

 private:
  static constexpr std::size_t strip = 32;                     // outputs
  static constexpr std::size_t cached = std::size_t{1} << 20;  // bytes of packed rows

  void put_rows(Interval rows, bf16* packed, std::size_t block) const {
    in_vectors_of_16([&] {
      for (std::size_t r = 0; r < rows.size; r += 16)
        pack(rows.offset + r, packed + r / 16 * block);
    });
    const std::size_t pairs = (rows.size + 31) / 32;
    for (std::size_t o = 0; o < of.out; o += strip) {
      const std::size_t first = std::min(o, of.out - strip);  // the last strip may overlap another
      const std::size_t coming = std::min(strip, of.out - first - strip);
      alignas(64) bf16 rest[strip * 32];
      copy_rest(first, rest);
      for (std::size_t pair = 0; pair < pairs; ++pair) {
        const Interval soon = block_of(coming, {static_cast<int>(pair), static_cast<int>(pairs)});
        const TileStrip inputs{of.in,    of.w + first * of.in,
                               rest,     packed + pair * 2 * block,
                               block,    of.w + (first + strip + soon.offset) * of.in,
                               soon.size};
        const std::size_t row = rows.offset + pair * 32;
        row + 16 < rows.end() ? put<2>(inputs, row, first) : put<1>(inputs, row, first);
      }
    }
  }

  [[gnu::always_inline]] void pack(std::size_t row, bf16* to) const {
    const std::size_t count = std::min<std::size_t>(16, of.rows - row);
    for (std::size_t i = 0; i < of.in; i += 32) {
      const std::size_t bytes = std::min<std::size_t>(32, of.in - i) * sizeof(bf16);
      std::array<Words16, 16> words{};
      if (count == 16 && bytes == sizeof(Words16)) {
#pragma GCC unroll 16
        for (std::size_t r = 0; r < 16; ++r)
          std::memcpy(&words[r], of.x + (row + r) * of.in + i, sizeof(Words16));
      } else {
        for (std::size_t r = 0; r < count; ++r)
          std::memcpy(&words[r], of.x + (row + r) * of.in + i, bytes);
      }
      transpose(words);
      std::memcpy(static_cast<void*>(to + i * 16), words.data(), sizeof words);
    }
  }

  void copy_rest(std::size_t first, bf16* rest) const {
    const std::size_t count = of.in % 32;
    if (count == 0) return;
    std::fill_n(rest, strip * 32, bf16{});
    for (std::size_t o = 0; o < strip; ++o)
      std::copy_n(of.w + (first + o + 1) * of.in - count, count, rest + o * 32);
  }

  template <std::size_t Blocks>
  void put(const TileStrip& inputs, std::size_t row, std::size_t first) const {
    constexpr std::size_t width = 16 * Blocks;
    alignas(64) float sums[strip * width];
    multiply_tiles<Blocks>(inputs, sums);
    if (of.bias != nullptr) {
      in_vectors_of_16([&] {
        for (std::size_t o = 0; o < strip; ++o) {
          const float added = static_cast<float>(of.bias[first + o]);
          for (std::size_t r = 0; r < width; ++r) sums[o * width + r] += added;
        }
      });
    }
    if (of.activation != Activation::none) activate(of.activation, sums, strip * width);
    in_vectors_of_16([&] {
      for (std::size_t b = 0; b < Blocks; ++b)
        put_block(sums + b * 16, width, row + b * 16, of.y + first);
    });
  }

  /// Writes 16 rows of a strip: a word of a vector is two neighbouring outputs.
  [[gnu::always_inline]] void put_block(const float* sums, std::size_t width, std::size_t row,
                                        bf16* to) const {
    std::array<Words16, 16> words;
#pragma GCC unroll 16
    for (std::size_t o = 0; o < 16; ++o) {
      Words16 even, odd;
      round_to_upper_halves(sums + 2 * o * width, even);
      round_to_upper_halves(sums + (2 * o + 1) * width, odd);
      words[o] = (even >> 16) | (odd & 0xffff0000U);
    }
    transpose(words);
    const std::size_t count = std::min<std::size_t>(16, of.rows - row);
    for (std::size_t r = 0; r < count; ++r)
      std::memcpy(static_cast<void*>(to + (row + r) * of.out), &words[r], sizeof(Words16));
  }
};

}  // namespace shardwise::detail::onednn

#endif
