#pragma once
// The product of one row with a weight, which takes as long as reading the weight from memory.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/vector_dot.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise::detail::onednn {

///@{
/// sum += the products of two lines of 64 bytes, which are 16 floats or 32 bf16. Of two
/// neighbouring bf16, a shift of their 4 bytes makes the first one a float, and a mask the second
/// one.
[[gnu::always_inline]] inline void add_line(const float* a, const float* b, Floats16& sum) {
  Floats16 x, y;
  load(a, x);
  load(b, y);
  sum += x * y;
}
[[gnu::always_inline]] inline void add_line(const bf16* a, const bf16* b, Floats16& sum) {
  Words16 x, y;
  std::memcpy(&x, a, sizeof x);
  std::memcpy(&y, b, sizeof y);
  sum += Floats16(x << 16) * Floats16(y << 16);
  sum += Floats16(x & 0xffff0000U) * Floats16(y & 0xffff0000U);
}
///@}

/// Σ_i x[i] w[n * distance + i] for each n below `Count`, which are computed at the same time.
template <std::size_t Count, class T>
[[gnu::always_inline]] inline std::array<float, Count> row_dots(const T* x, const T* w,
                                                                std::size_t in,
                                                                std::size_t distance) {
  constexpr std::size_t line = 64 / sizeof(T);
  Floats16 sums[Count] = {};
  std::size_t i = 0;
  for (; i + line <= in; i += line) {
#pragma GCC unroll 8
    for (std::size_t n = 0; n < Count; ++n) add_line(x + i, w + n * distance + i, sums[n]);
  }
  std::array<float, Count> dots;
  for (std::size_t n = 0; n < Count; ++n) dots[n] = sum_of_lanes(sums[n]);
  for (; i < in; ++i)
    for (std::size_t n = 0; n < Count; ++n)
      dots[n] += static_cast<float>(x[i]) * static_cast<float>(w[n * distance + i]);
  return dots;
}

/// Whether RowProduct is faster than the library's products on one thread, for weights that are in
/// no cache: seen on a Xeon and, of the library's, on an EPYC, see docs/benchmarks.md. It is not
/// with vectors of 8 floats, which leave too few registers for all sums, nor where adding up lanes
/// takes longer than the products.
inline bool gains_from_row_product(std::size_t in) {
  return has_vectors && in >= 64 && has(dnnl_cpu_isa_avx512_core);
}

/// values[i] = activation(values[i]).
inline void activate(Activation activation, float* values, std::size_t n) {
  visit(activation, [=](auto f) {
    independent_loop(n, [=](std::size_t i) { values[i] = f.value(values[i]); });
  });
}

/// y[out] = activation(x[in] wᵀ + bias[out]), with w [out, in] as it lies; `bias` may be null. For
/// a processor with vectors of 16 floats.
template <class T>
struct RowProduct {
  std::size_t in, out;
  const T* x;
  const T* w;
  const T* bias;
  Activation activation;
  T* y;

  /// On the calling thread. A core reads faster from several places that are far apart than from
  /// one, so it reads eight equal parts of the weight at the same time.
  void run() const {
    constexpr std::size_t parts = 8, most = 16;
    const std::size_t part = out / parts;
    for (std::size_t done = 0; done < part; done += most)
      put<parts, most>(done, std::min(most, part - done), part);
    if (part * parts < out) put<1, parts>(part * parts, out - part * parts, 0);
  }

 private:
  /// `count` outputs, at most `Most`, from `first` on, and as many of each of `Parts` places that
  /// are `distance` outputs apart.
  template <std::size_t Parts, std::size_t Most>
  void put(std::size_t first, std::size_t count, std::size_t distance) const {
    std::array<float, Parts * Most> sums;
    in_vectors_of_16([&] {
      for (std::size_t o = 0; o < count; ++o) {
        const auto dots = row_dots<Parts>(x, w + (first + o) * in, in, distance * in);
        for (std::size_t n = 0; n < Parts; ++n) sums[n * count + o] = dots[n];
      }
    });
    const auto for_each_part = [&](auto f) {
      for (std::size_t n = 0; n < Parts; ++n)
        for (std::size_t o = 0; o < count; ++o) f(sums[n * count + o], first + n * distance + o);
    };
    if (bias != nullptr)
      for_each_part([this](float& sum, std::size_t o) { sum += static_cast<float>(bias[o]); });
    if (activation != Activation::none) activate(activation, sums.data(), Parts * count);
    for_each_part([this](float sum, std::size_t o) { y[o] = static_cast<T>(sum); });
  }
};

}  // namespace shardwise::detail::onednn
