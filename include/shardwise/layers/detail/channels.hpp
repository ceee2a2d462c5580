#pragma once
// Loops over the channels of a tensor, and sums over all axes but one.

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// The position of the channel axis of x, or else of its feature axis; the rank of x without
/// either.
constexpr std::size_t channel_axis(const Shape& x) {
  return x.find(x.has(Axis::channel) ? Axis::channel : Axis::feature);
}

/// Throws shape_error unless x has an axis of channels or one of features, with this extent. `does`
/// is what the layer does with them.
constexpr void require_channels(const Shape& x, const char* does, std::size_t extent) {
  const std::size_t axis = channel_axis(x);
  const bool both = x.has(Axis::channel) && x.has(Axis::feature);
  if (!both && axis < x.rank() && (!x[axis].known() || x[axis].extent() == extent)) return;
  throw shape_error({"the input is a tensor ", x, ", but the layer ", does, " ", extent,
                     " channels or features: there must be one such axis, with that extent"});
}

/// A row-major tensor as [outer, channels, inner].
struct ChannelsOf {
  std::size_t outer = 0;
  std::size_t channels = 0;
  std::size_t inner = 0;

  constexpr ChannelsOf(std::size_t before, std::size_t here, std::size_t behind)
      : outer(before), channels(here), inner(behind) {}
  constexpr ChannelsOf(const Shape& shape, std::size_t axis)
      : outer(shape.elements(0, axis)),
        channels(shape[axis].extent()),
        inner(shape.elements(axis + 1, shape.rank())) {}

  /// Elements of one channel.
  constexpr std::size_t count() const { return outer * inner; }
};

/// The value in double, by the type in which it is summed.
template <class T>
constexpr double number(T value) {
  return static_cast<double>(static_cast<accumulate_t<T>>(value));
}

/// The element i.
template <class T>
struct ChannelValue {
  const T* values;

  constexpr auto operator()(std::size_t) const {
    return [in = values](std::size_t i) { return number(in[i]); };
  }
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

/// The term of element number k of channel c, which is element i of the tensor.
template <class Terms>
struct TermsOfChannel {
  ChannelsOf tensor;
  Terms terms;

  constexpr auto operator()(std::size_t c) const {
    return [inner = tensor.inner, step = tensor.channels * tensor.inner, begin = c * tensor.inner,
            term = terms(c)](std::size_t k) { return term(begin + k / inner * step + k % inner); };
  }
};

/// sums[c] = Σ terms(c)(i) over the elements i of channel c, in double.
template <class B, class Terms>
void put_channel_sums(B& backend, const ChannelsOf& tensor, const Terms& terms, double* sums) {
  if constexpr (DeviceBackend<B>) {
    backend.reduce_each(tensor.channels, tensor.count(),
                        tensor.inner == 1 ? Adjacent::rows : Adjacent::terms, 0.0,
                        TermsOfChannel<Terms>{tensor, terms}, Plus{}, PutInto<double>{sums});
  } else {
    backend.for_each((tensor.channels + columns_at_once - 1) / columns_at_once,
                     SumsOfChannels<Terms>{tensor, terms, sums});
  }
}

/// Two sums in one pass.
struct TwoSums {
  double first;
  double second;

  friend constexpr TwoSums operator+(const TwoSums& a, const TwoSums& b) {
    return {a.first + b.first, a.second + b.second};
  }
};

/// The terms of both sums.
template <class First, class Second>
struct BothTerms {
  First first;
  Second second;

  constexpr auto operator()(std::size_t c) const {
    return [a = first(c), b = second(c)](std::size_t i) { return TwoSums{a(i), b(i)}; };
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
                        TermsOfChannel<BothTerms<First, Second>>{tensor, {first, second}}, Plus{},
                        PutChannelSums{tensor.channels, sums});
  } else {
    put_channel_sums(backend, tensor, first, sums);
    put_channel_sums(backend, tensor, second, sums + tensor.channels);
  }
}

/// gradient (+)= Σ.
template <class T>
struct ChannelGradient {
  const double* sums;
  Write write;
  T* gradient;

  constexpr void operator()(std::size_t c) const {
    store(gradient[c], static_cast<accumulate_t<T>>(sums[c]), write);
  }
};

/// gradient[c] (+)= Σ terms(c)(i) over the elements i of channel c, summed in double.
template <class Frame, class Terms, class T>
void put_channel_gradient(Frame& frame, const ChannelsOf& tensor, const Terms& terms, T* gradient) {
  const Buffer memory = frame.take(tensor.channels * sizeof(double));
  double* const sums = static_cast<double*>(memory.data());
  put_channel_sums(frame.backend(), tensor, terms, sums);
  frame.backend().for_each(tensor.channels, ChannelGradient<T>{sums, frame.write(), gradient});
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
      const std::size_t begin = o * tensor.channels * tensor.inner;
      if (tensor.inner == 1) {
        backend.for_each(tensor.channels, [f, begin](std::size_t c) { f(c)(begin + c); });
        continue;
      }
      for (std::size_t c = 0; c < tensor.channels; ++c) {
        const std::size_t first = begin + c * tensor.inner;
        backend.for_each(tensor.inner, [g = f(c), first](std::size_t i) { g(first + i); });
      }
    }
  }
}

}  // namespace shardwise::detail
