#pragma once
// The product of a few rows of bf16 with a weight by an instruction that multiplies pairs of them
// (AVX-512 BF16), which reads the weight as it lies.

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "shardwise/backend/onednn/forward.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/vector_dot.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::onednn {

/// sums[r][n] += x[r * apart + i] w[n * distance + i] over 32 places i.
template <std::size_t Rows, std::size_t Count>
[[gnu::target("avx512f,avx512bf16"), gnu::always_inline]] inline void add_pairs(
    const bf16* x, const bf16* w, std::size_t apart, std::size_t distance,
    __m512 (&sums)[Rows][Count]) {
  __m512bh lines[Count];
#pragma GCC unroll 8
  for (std::size_t n = 0; n < Count; ++n) std::memcpy(&lines[n], w + n * distance, sizeof lines[n]);
#pragma GCC unroll 8
  for (std::size_t r = 0; r < Rows; ++r) {
    __m512bh line;
    std::memcpy(&line, x + r * apart, sizeof line);
#pragma GCC unroll 8
    for (std::size_t n = 0; n < Count; ++n)
      sums[r][n] = _mm512_dpbf16_ps(sums[r][n], line, lines[n]);
  }
}

/// The last numbers of `Lines` lines that begin `apart` numbers apart, and zeros.
template <std::size_t Lines>
struct LineEnds {
  bf16 numbers[Lines * 32] = {};

  LineEnds(const bf16* from, std::size_t count, std::size_t apart) {
    for (std::size_t n = 0; n < Lines; ++n) std::copy_n(from + n * apart, count, numbers + n * 32);
  }
};

/// A forward in bf16, with sums in float. For a processor that multiplies pairs.
struct PairProduct {
  Forward<bf16> of;

  /// Whether it is faster than the library's product of so many rows with a weight that is in no
  /// cache: seen on an EPYC, see bench/log.md, "Few rows".
  static bool gains(std::size_t rows) {
    return has_vectors && multiplies_pairs() && rows > 1 && rows < 32;
  }

  /// A core reads faster from several places that are far apart than from one, so it reads four
  /// equal parts of the weight at the same time.
  void run() const {
    constexpr std::size_t parts = 4;
    const std::size_t part = of.out / parts;
    for (std::size_t o = 0; o < part; o += width)
      put_rows<parts>(o, std::min(width, part - o), part);
    for (std::size_t o = part * parts; o < of.out; o += width)
      put_rows<1>(o, std::min(width, of.out - o), 0);
  }

 private:
  static constexpr std::size_t width = 16;
  static constexpr std::size_t ahead = 16 * 32;  // numbers that are asked for before they are read
  static constexpr std::size_t most = 6;  // rows, whose sums with four outputs are in registers

  /// `count` outputs of all rows, at most 16, from `first` on, and as many of each of `Parts`
  /// places that are `distance` outputs apart. Groups of rows after the first one find the weight
  /// in a cache.
  template <std::size_t Parts>
  void put_rows(std::size_t first, std::size_t count, std::size_t distance) const {
    const int groups = static_cast<int>((of.rows + most - 1) / most);
    for (int group = 0; group < groups; ++group)
      put_group<1, Parts>(block_of(of.rows, {group, groups}), first, count, distance);
  }

  template <std::size_t Rows, std::size_t Parts>
  void put_group(Interval rows, std::size_t first, std::size_t count, std::size_t distance) const {
    if (rows.size == Rows) return put<Rows, Parts>(rows.offset, first, count, distance);
    if constexpr (Rows < most) put_group<Rows + 1, Parts>(rows, first, count, distance);
  }

  template <std::size_t Rows, std::size_t Parts>
  [[gnu::target("avx512f,avx512bf16")]] void put(std::size_t row, std::size_t first,
                                                 std::size_t count, std::size_t distance) const {
    const std::size_t rest = of.in % 32, whole = of.in - rest, apart = distance * of.in;
    const bf16* const x = of.x + row * of.in;
    const LineEnds<Rows> x_ends(x + whole, rest, of.in);
    float sums[Rows][Parts][width] = {};
    for (std::size_t o = 0; o < count; ++o) {
      const bf16* const w = of.w + (first + o) * of.in;
      __m512 dots[Rows][Parts]{};
      for (std::size_t i = 0; i < whole; i += 32) {
#pragma GCC unroll 8
        for (std::size_t n = 0; n < Parts; ++n) __builtin_prefetch(w + n * apart + i + ahead);
        add_pairs(x + i, w + i, of.in, apart, dots);
      }
      if (rest > 0)
        add_pairs(x_ends.numbers, LineEnds<Parts>(w + whole, rest, apart).numbers, 32, 32, dots);
      Floats16 lanes[Rows][Parts];  // a copy has addresses, so that dots stay in registers
      std::memcpy(lanes, dots, sizeof dots);
      for (std::size_t r = 0; r < Rows; ++r)
        for (std::size_t n = 0; n < Parts; ++n) sums[r][n][o] = sum_of_lanes(lanes[r][n]);
    }
    in_vectors_of_16([&] {
      for (std::size_t r = 0; r < Rows; ++r)
        for (std::size_t n = 0; n < Parts; ++n)
          of.put(row + r, first + n * distance, count, sums[r][n]);
    });
  }
};

}  // namespace shardwise::detail::onednn

#endif
