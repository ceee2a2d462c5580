#pragma once
// Loops over the channels of a tensor, and sums over all axes but one.

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// A row-major tensor as [outer, channels, inner].
struct ChannelsOf {
  std::size_t outer = 0;
  std::size_t channels = 0;
  std::size_t inner = 0;

  constexpr ChannelsOf(const Shape& shape, std::size_t axis)
      : outer(shape.elements(0, axis)),
        channels(shape[axis].extent()),
        inner(shape.elements(axis + 1, shape.rank())) {}

  /// Elements of one channel.
  constexpr std::size_t count() const { return outer * inner; }
};

/// sums[c] = Σ terms(c)(i) over the elements i of channel c, in double, for a block of channels.
template <class Terms>
struct SumsOfChannels {
  ChannelsOf tensor;
  Terms terms;
  double* sums;

  constexpr void operator()(std::size_t block) const {
    const std::size_t first = block * columns_at_once;
    const std::size_t here = std::min(columns_at_once, tensor.channels - first);
    std::array<double, columns_at_once> mine{};
    for (std::size_t o = 0; o < tensor.outer; ++o) {
      const std::size_t begin = (o * tensor.channels + first) * tensor.inner;
      if (tensor.inner == 1) {
        for (std::size_t c = 0; c < here; ++c) mine[c] += terms(first + c)(begin + c);
      } else {
        for (std::size_t c = 0; c < here; ++c) {
          mine[c] += lane_sum<double>(tensor.inner,
                                      [term = terms(first + c), from = begin + c * tensor.inner](
                                          std::size_t i) { return term(from + i); });
        }
      }
    }
    for (std::size_t c = 0; c < here; ++c) sums[first + c] = mine[c];
  }
};

/// Two sums in one pass.
struct TwoSums {
  double first;
  double second;

  friend constexpr TwoSums operator+(const TwoSums& a, const TwoSums& b) {
    return {a.first + b.first, a.second + b.second};
  }
};

/// The terms of both sums for element number k of channel c, which is element i of the tensor.
template <class First, class Second>
struct TermsOfChannel {
  ChannelsOf tensor;
  First first;
  Second second;

  constexpr auto operator()(std::size_t c) const {
    return [inner = tensor.inner, step = tensor.channels * tensor.inner, begin = c * tensor.inner,
            a = first(c), b = second(c)](std::size_t k) {
      const std::size_t i = begin + k / inner * step + k % inner;
      return TwoSums{a(i), b(i)};
    };
  }
};

/// sums[0, c] and sums[1, c].
struct PutChannelSums {
  std::size_t channels;
  double* sums;

  constexpr void operator()(std::size_t c, const TwoSums& of_channel) const {
    sums[c] = of_channel.first;
    sums[channels + c] = of_channel.second;
  }
};

/// sums[0, c] = Σ first(c)(i) and sums[1, c] = Σ second(c)(i) over the elements i of channel c, in
/// double: on a device in one pass, on the host one after the other.
template <class B, class First, class Second>
void put_channel_sums(B& backend, const ChannelsOf& tensor, const First& first,
                      const Second& second, double* sums) {
  if constexpr (DeviceBackend<B>) {
    backend.reduce_each(tensor.channels, tensor.count(),
                        tensor.inner == 1 ? Adjacent::rows : Adjacent::terms, TwoSums{},
                        TermsOfChannel<First, Second>{tensor, first, second}, Plus{},
                        PutChannelSums{tensor.channels, sums});
  } else {
    const std::size_t blocks = (tensor.channels + columns_at_once - 1) / columns_at_once;
    backend.for_each(blocks, SumsOfChannels<First>{tensor, first, sums});
    backend.for_each(blocks, SumsOfChannels<Second>{tensor, second, sums + tensor.channels});
  }
}

/// f(c)(i) for element i, which is of channel c.
template <class F>
struct InItsChannel {
  ChannelsOf tensor;
  F f;

  constexpr void operator()(std::size_t i) const { f(i / tensor.inner % tensor.channels)(i); }
};

/// Calls f(c)(i) for every element i of every channel c. The host does a contiguous run at a time,
/// since a division for every element would take longer than the call.
template <class B, class F>
void for_each_in_channels(B& backend, const ChannelsOf& tensor, const F& f) {
  if constexpr (DeviceBackend<B>) {
    backend.for_each(tensor.channels * tensor.count(), InItsChannel<F>{tensor, f});
  } else {
    for (std::size_t o = 0; o < tensor.outer; ++o) {
      for (std::size_t c = 0; c < tensor.channels; ++c) {
        const std::size_t first = (o * tensor.channels + c) * tensor.inner;
        backend.for_each(tensor.inner, [g = f(c), first](std::size_t i) { g(first + i); });
      }
    }
  }
}

}  // namespace shardwise::detail
