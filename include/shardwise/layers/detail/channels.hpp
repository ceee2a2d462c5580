#pragma once
// Sums over everything but one axis of a tensor.

#include <cstddef>

#include "shardwise/backend/detail/sums.hpp"
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

  /// Calls f(channel, first element, length) for every run of elements of one channel, in the order
  /// of memory.
  template <class F>
  void for_each_run(F&& f) const {
    for (std::size_t o = 0; o < outer; ++o) {
      for (std::size_t c = 0; c < channels; ++c) f(c, (o * channels + c) * inner, inner);
    }
  }

  /// sums[c] = Σ term(c, element) over the elements of channel c, in double.
  template <class Term>
  void put_sums(double* sums, Term term) const {
    for (std::size_t c = 0; c < channels; ++c) sums[c] = 0;
    for_each_run([&](std::size_t c, std::size_t first, std::size_t length) {
      if (length == 1) {
        sums[c] += term(c, first);
      } else {
        sums[c] += lane_sum<double>(length, [&](std::size_t i) { return term(c, first + i); });
      }
    });
  }
};

}  // namespace shardwise::detail
