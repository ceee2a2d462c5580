#pragma once
// The reduction of the values of several ranks, in rank order.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise {

namespace detail {

template <Reduction R, class A>
constexpr A combine(A a, A b) {
  if constexpr (R == Reduction::sum) return static_cast<A>(a + b);
  if constexpr (R == Reduction::max) return b > a || b != b ? b : a;
  if constexpr (R == Reduction::min) return b < a || b != b ? b : a;
}

/// Elements that are reduced at a time: their sums stay in the first-level cache.
inline constexpr std::size_t reduction_block = 1024;

/// Calls f(i) for each i < count. Only sums are of so many numbers that wide vectors pay for the
/// time to compile them.
template <Reduction R, class F>
void reduce_loop(std::size_t count, const F& f) {
  if constexpr (R == Reduction::sum) {
    independent_loop(count, f);
  } else {
    for (std::size_t i = 0; i < count; ++i) f(i);
  }
}

/// sums[i] = in[0][first + i] + in[1][first + i] + ..., from left to right.
template <Reduction R, class T>
void reduce_block(std::span<const T* const> in, std::size_t first, std::size_t count,
                  accumulate_t<T>* sums) {
  using A = accumulate_t<T>;
  const T* a = in[0] + first;
  if (in.size() == 1) {
    for (std::size_t i = 0; i < count; ++i) sums[i] = static_cast<A>(a[i]);
    return;
  }
  reduce_loop<R>(count, [=, b = in[1] + first](std::size_t i) {
    sums[i] = combine<R>(static_cast<A>(a[i]), static_cast<A>(b[i]));
  });
  for (std::size_t r = 2; r < in.size(); ++r) {
    reduce_loop<R>(count, [=, c = in[r] + first](std::size_t i) {
      sums[i] = combine<R>(sums[i], static_cast<A>(c[i]));
    });
  }
}

/// reduce_block for one Reduction.
template <class T>
using ReduceBlock = void (*)(std::span<const T* const>, std::size_t, std::size_t, accumulate_t<T>*);

/// The same for each block of the range; compiled once for all reductions.
template <class T>
void reduce_blocks(ReduceBlock<T> reduce, std::span<const T* const> in, std::size_t first,
                   std::size_t count, std::span<T* const> outputs) {
  if constexpr (std::same_as<T, accumulate_t<T>>) {
    // Each element of an input is read before that of the output is written.
    if (in.size() <= 2 && outputs.size() == 1) return reduce(in, first, count, outputs[0]);
  }
  std::array<accumulate_t<T>, reduction_block> sums;
  for (std::size_t done = 0; done < count; done += reduction_block) {
    const std::size_t n = std::min(reduction_block, count - done);
    reduce(in, first + done, n, sums.data());
    for (T* out : outputs)
      independent_loop(n, [from = sums.data(), to = out + done](std::size_t i) {
        to[i] = static_cast<T>(from[i]);
      });
  }
}

}  // namespace detail

/// outputs[k][i] = in[0][first + i] + in[1][first + i] + ... for each i < count and every k, or max
/// or min instead of +. Operands are taken in rank order, in accumulate_t<T>, and rounded once; the
/// result does not depend on how a range is divided into calls. An output may be exactly the range
/// of an input.
template <Element T>
void ordered_sum(std::span<const T* const> in, std::size_t first, std::size_t count,
                 std::span<T* const> outputs, Reduction reduction = Reduction::sum) {
  switch (reduction) {
    case Reduction::sum:
      return detail::reduce_blocks<T>(detail::reduce_block<Reduction::sum, T>, in, first, count,
                                      outputs);
    case Reduction::max:
      return detail::reduce_blocks<T>(detail::reduce_block<Reduction::max, T>, in, first, count,
                                      outputs);
    case Reduction::min:
      return detail::reduce_blocks<T>(detail::reduce_block<Reduction::min, T>, in, first, count,
                                      outputs);
  }
}

}  // namespace shardwise

#ifdef SHARDWISE_COMPILED

namespace shardwise {

SHARDWISE_EXTERN template void ordered_sum(std::span<const float* const>, std::size_t, std::size_t,
                                           std::span<float* const>, Reduction);
SHARDWISE_EXTERN template void ordered_sum(std::span<const double* const>, std::size_t, std::size_t,
                                           std::span<double* const>, Reduction);
SHARDWISE_EXTERN template void ordered_sum(std::span<const bf16* const>, std::size_t, std::size_t,
                                           std::span<bf16* const>, Reduction);
SHARDWISE_EXTERN template void ordered_sum(std::span<const fp16* const>, std::size_t, std::size_t,
                                           std::span<fp16* const>, Reduction);
SHARDWISE_EXTERN template void ordered_sum(std::span<const std::int32_t* const>, std::size_t,
                                           std::size_t, std::span<std::int32_t* const>, Reduction);
SHARDWISE_EXTERN template void ordered_sum(std::span<const std::int64_t* const>, std::size_t,
                                           std::size_t, std::span<std::int64_t* const>, Reduction);
SHARDWISE_EXTERN template void ordered_sum(std::span<const std::uint8_t* const>, std::size_t,
                                           std::size_t, std::span<std::uint8_t* const>, Reduction);

}  // namespace shardwise

#endif
