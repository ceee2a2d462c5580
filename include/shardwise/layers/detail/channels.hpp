#pragma once
// Work on a tensor channel by channel, and sums over everything but one axis.

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/backend/tensor_memory.hpp"
#include "shardwise/core/shape.hpp"

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

/// sums[c] = Σ terms(c)(i) over the elements i of channel c, in double, of `Width` neighbouring
/// channels.
template <std::size_t Width, class Terms>
struct SumsOfChannels {
  ChannelsOf tensor;
  Terms terms;
  double* sums;

  constexpr void operator()(std::size_t block) const {
    const std::size_t first = block * Width;
    const std::size_t here = std::min(Width, tensor.channels - first);
    std::array<double, Width> mine{};
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

/// sums[c] = Σ terms(c)(i) over the elements i of channel c, in double.
template <class B, class Terms>
void put_channel_sums(B& backend, const ChannelsOf& tensor, const Terms& terms, double* sums) {
  constexpr std::size_t width = columns_at_once<B>;
  backend.for_each((tensor.channels + width - 1) / width,
                   SumsOfChannels<width, Terms>{tensor, terms, sums});
}

/// f(c)(i) for element i, which is of channel c.
template <class F>
struct InItsChannel {
  ChannelsOf tensor;
  F f;

  constexpr void operator()(std::size_t i) const { f(i / tensor.inner % tensor.channels)(i); }
};

/// Calls f(c)(i) for every element i of every channel c. On the host a run of neighbours at a time,
/// since a division for every element would take longer than what is done to it.
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
