#pragma once
// The product of one row with a weight, which takes as long as reading the weight from memory.

#include <array>
#include <cstddef>
#include <cstring>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/vector_dot.hpp"
#include "shardwise/core/dtype.hpp"

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

/// Whether RowProduct is faster than the library's products on one thread. It is for weights that
/// are in no cache: on a Xeon 1.1 to 1.7 times as fast as `inner_product`, and 1.3 to 1.8 times as
/// a packed product (bench/log.md, "One row"). It is not with vectors of 8 floats, which leave too
/// few registers for all sums, nor where adding up lanes takes longer than the products.
inline bool gains_from_row_product(std::size_t in) {
  return in >= 64 && has(dnnl_cpu_isa_avx512_core);
}

/// y[out] = activation(x[in] wᵀ + bias[out]), with w [out, in] as it lies; `bias` may be null.
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
    constexpr std::size_t parts = 8;
    in_fused_vectors([this] {
      const std::size_t part = out / parts;
      for (std::size_t o = 0; o < part; ++o) put<parts>(o, part);
      for (std::size_t o = part * parts; o < out; ++o) put<1>(o, 0);
    });
  }

 private:
  /// The outputs o, o + part, ..., which are `Count`.
  template <std::size_t Count>
  [[gnu::always_inline]] void put(std::size_t o, std::size_t part) const {
    std::array<float, Count> sums = row_dots<Count>(x, w + o * in, in, part * in);
    if (bias != nullptr)
      for (std::size_t n = 0; n < Count; ++n) sums[n] += static_cast<float>(bias[o + n * part]);
    visit(activation, [&](auto f) {
      for (float& sum : sums) sum = f.value(sum);
    });
    for (std::size_t n = 0; n < Count; ++n) y[o + n * part] = static_cast<T>(sums[n]);
  }
};

}  // namespace shardwise::detail::onednn
