#pragma once
// Dropout whose mask is the same at any number of ranks.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

namespace detail {

/// What all dropout has in common.
template <std::uint32_t Numerator, std::uint32_t Denominator>
struct Drops : KeepsLayout {
  static_assert(Numerator < Denominator,
                "Dropout<Numerator, Denominator> drops that fraction of the elements: it must be "
                "at least 0 and less than 1, as in Dropout<1, 4>.");

  static constexpr Saves saves = Saves::nothing;
  static constexpr bool in_place = true;
  static constexpr bool random = true;

 protected:
  static constexpr double probability = static_cast<double>(Numerator) / Denominator;

  template <class T>
  static T masked(T value, float u) {
    using A = accumulate_t<T>;
    constexpr A scale = static_cast<A>(1.0 / (1.0 - probability));
    const bool keeps = static_cast<double>(u) >= probability;
    return static_cast<T>(detail::select(keeps, static_cast<A>(value) * scale, A{0}));
  }
};

}  // namespace detail

/// In training y = x m / (1 - p), where m is 0 with probability p = Numerator / Denominator and
/// else 1; in evaluation y = x. m is drawn by seed, layer, step and *global* element, so ranks that
/// hold the same tensor draw the same mask, shards draw their part of it, and backward draws it
/// again instead of saving it.
/// layout   L -> L, for every L but Partial
/// sends    nothing
/// source   Srivastava et al. 2014, section 10 (scaled in training)
template <std::uint32_t Numerator, std::uint32_t Denominator>
struct Dropout : detail::Drops<Numerator, Denominator> {
  ///@{
  /// As `Layer` says.
  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    apply_mask(frame, x, y);
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    apply_mask(frame, dy, dx);
  }
  ///@}

 private:
  template <class Frame, class In, class Out>
  static void apply_mask(Frame& frame, In in, Out out) {
    if (!frame.training()) {
      std::copy_n(in.data(), in.size(), out.data());
      return;
    }
    const RandomStream stream = frame.random();
    const std::uint64_t first = frame.first_element();
    for_each_global_run(in, [&](std::size_t global, std::size_t local, std::size_t length) {
      const auto* from = in.data() + local;
      auto* to = out.data() + local;
      const std::uint64_t begin = first + global;
      stream.for_each_uniform(begin, begin + length, [&](std::uint64_t i, float u) {
        to[i - begin] = Dropout::masked(from[i - begin], u);
      });
    });
  }
};

/// Dropout of whole planes of images [batch, channel, ...]: m is drawn for each sample and channel.
/// layout, sends    as Dropout
/// throws   shape_error if x does not begin with batch and channel
/// source   Tompson et al. 2015; torch.nn.Dropout2d
template <std::uint32_t Numerator, std::uint32_t Denominator>
struct ChannelDropout : detail::Drops<Numerator, Denominator> {
  ///@{
  /// As `Layer` says.
  constexpr Shape output_shape(const Shape& x) const {
    const bool fits = x.rank() >= 2 && x[0].axis == Axis::batch && x[1].axis == Axis::channel;
    if (x.rank() > 0 && !fits) {
      throw shape_error("the input is a tensor " + to_string(x) +
                        ", but dropout by channel takes images [batch, channel, ...]");
    }
    return x;
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    apply_mask(frame, x, y);
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    apply_mask(frame, dy, dx);
  }
  ///@}

 private:
  template <class Frame, class In, class Out>
  static void apply_mask(Frame& frame, In in, Out out) {
    if (!frame.training()) {
      std::copy_n(in.data(), in.size(), out.data());
      return;
    }
    const RandomStream stream = frame.random();
    const std::size_t plane = in.global().elements(2, in.global().rank());
    for_each_global_run(in, [&](std::size_t global, std::size_t local, std::size_t length) {
      for (std::size_t i = 0; i < length;) {  // one plane, or what is here of it, at a time
        const std::size_t number = (global + i) / plane;
        const std::size_t end = std::min(length, (number + 1) * plane - global);
        const float u = stream.uniform(frame.first_element() / plane + number);
        for (; i < end; ++i) out[local + i] = ChannelDropout::masked(in[local + i], u);
      }
    });
  }
};

}  // namespace shardwise
