#pragma once
// The product of one to eight rows with a weight, which takes hardly longer than reading the weight
// from memory.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>

#include "shardwise/backend/onednn/forward.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/vector_dot.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::onednn {

///@{
/// The numbers in a line of 64 bytes: 16 floats, or of 32 bf16 first those at even and then those
/// at odd places. Of two neighbouring bf16, a shift of their 4 bytes makes the first one a float,
/// and a mask the second one.
[[gnu::always_inline]] inline void load_line(const float* from, std::array<Floats16, 1>& to) {
  load(from, to[0]);
}
[[gnu::always_inline]] inline void load_line(const bf16* from, std::array<Floats16, 2>& to) {
  Words16 words;
  std::memcpy(&words, from, sizeof words);
  to = {Floats16(words << 16), Floats16(words & 0xffff0000U)};
}
///@}

/// Σ_i x[r * apart + i] w[n * distance + i] over `count` places i at [r][n], for each r below
/// `Rows` and n below `Count`, which are computed at the same time. From two rows on, products take
/// so long that a core does not read ahead far enough by itself.
template <std::size_t Rows, std::size_t Count, class T>
[[gnu::always_inline]] inline std::array<std::array<float, Count>, Rows> row_dots(
    const T* x, const T* w, std::size_t count, std::size_t apart, std::size_t distance) {
  constexpr std::size_t numbers = 64 / sizeof(T), ahead = 16 * numbers;
  using Line = std::array<Floats16, numbers / 16>;
  Floats16 sums[Rows][Count] = {};
  std::size_t i = 0;
  for (; i + numbers <= count; i += numbers) {
    Line lines[Count];
#pragma GCC unroll 8
    for (std::size_t n = 0; n < Count; ++n) {
      load_line(w + n * distance + i, lines[n]);
      if constexpr (Rows > 1) __builtin_prefetch(w + n * distance + i + ahead);
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      Line line;
      load_line(x + r * apart + i, line);
#pragma GCC unroll 8
      for (std::size_t n = 0; n < Count; ++n)
        for (std::size_t v = 0; v < line.size(); ++v) sums[r][n] += line[v] * lines[n][v];
    }
  }
  std::array<std::array<float, Count>, Rows> dots;
  for (std::size_t r = 0; r < Rows; ++r)
    for (std::size_t n = 0; n < Count; ++n) dots[r][n] = sum_of_lanes(sums[r][n]);
  for (; i < count; ++i)
    for (std::size_t r = 0; r < Rows; ++r)
      for (std::size_t n = 0; n < Count; ++n)
        dots[r][n] +=
            static_cast<float>(x[r * apart + i]) * static_cast<float>(w[n * distance + i]);
  return dots;
}

/// The most rows of RowProduct: for more, bf16 take too long to become floats, and float products
/// to be added up.
template <class T>
inline constexpr std::size_t most_product_rows = std::same_as<T, float> ? 8 : 4;

/// Whether RowProduct is faster than the library's products on one thread, for weights that are in
/// no cache: see bench/log.md, "Few rows". It is not with vectors of 8 floats, which leave too few
/// registers for all sums, nor where adding up lanes takes longer than the products.
template <class T>
bool gains_from_row_product(std::size_t rows, std::size_t in) {
  return has_vectors && rows <= most_product_rows<T> && in >= 64 && has(dnnl_cpu_isa_avx512_core);
}

/// A forward of one to `most_product_rows` rows. For a processor with vectors of 16 floats.
template <class T>
struct RowProduct {
  Forward<T> of;

  /// On the calling thread. A core reads faster from several places that are far apart than from
  /// one, so it reads eight equal parts of the weight at the same time; for three rows and more it
  /// has registers for four.
  void run() const { run_as<1>(); }

 private:
  template <std::size_t Rows>
  void run_as() const {
    constexpr std::size_t parts = Rows <= 2 ? 8 : 4;
    if (of.rows == Rows) return run_all<Rows, parts>();
    if constexpr (Rows < most_product_rows<T>) run_as<Rows + 1>();
  }

  template <std::size_t Rows, std::size_t Parts>
  void run_all() const {
    const std::size_t part = of.out / Parts;
    for (std::size_t done = 0; done < part; done += width)
      put<Rows, Parts>(done, std::min(width, part - done), part);
    if (part * Parts < of.out) put<Rows, 1>(part * Parts, of.out - part * Parts, 0);
  }

  /// `count` outputs, at most 16, from `first` on, and as many of each of `Parts` places that are
  /// `distance` outputs apart; of so many inputs at once that those of all rows stay in the first
  /// cache of the core.
  template <std::size_t Rows, std::size_t Parts>
  void put(std::size_t first, std::size_t count, std::size_t distance) const {
    const std::size_t inputs = Rows > 4 ? 1024 : of.in;
    in_vectors_of_16([&] {
      float sums[Rows][Parts][width] = {};
      for (std::size_t i = 0; i < of.in; i += inputs)
        for (std::size_t o = 0; o < count; ++o) {
          const auto dots =
              row_dots<Rows, Parts>(of.x + i, of.w + (first + o) * of.in + i,
                                    std::min(inputs, of.in - i), of.in, distance * of.in);
          for (std::size_t r = 0; r < Rows; ++r)
            for (std::size_t n = 0; n < Parts; ++n) sums[r][n][o] += dots[r][n];
        }
      for (std::size_t r = 0; r < Rows; ++r)
        for (std::size_t n = 0; n < Parts; ++n) of.put(r, first + n * distance, count, sums[r][n]);
    });
  }

  static constexpr std::size_t width = 16;
};

}  // namespace shardwise::detail::onednn
