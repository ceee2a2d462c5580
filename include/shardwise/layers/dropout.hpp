#pragma once
// Dropout whose mask is the same at any number of ranks.

#include <cstddef>
#include <cstdint>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/global_runs.hpp"

namespace shardwise {

namespace detail {

/// The new value of an element: 0 with this probability, else the element over 1 - probability.
template <class T>
struct Drop {
  using A = accumulate_t<T>;

  float least;  ///< uniform number that keeps
  A scale;

  constexpr explicit Drop(double probability)
      : least(least_uniform(probability)), scale(static_cast<A>(1.0 / (1.0 - probability))) {}

  constexpr T operator()(T x, float u) const {
    return static_cast<T>(select(u >= least, static_cast<A>(x) * scale, A{0}));
  }
};

/// y = x m, with a draw for each element.
template <class T, class Stream>
struct DropElements {
  static constexpr bool is_loop = true;

  Stream stream;
  Drop<T> drop;
  const T* x;
  T* y;

  constexpr void operator()(std::uint64_t begin, std::uint64_t end, std::size_t local) const {
    stream.for_each_uniform_in_any_order(begin, end,
                                         [*this, begin, local](std::uint64_t i, float u) {
                                           y[local + (i - begin)] = drop(x[local + (i - begin)], u);
                                         });
  }
};

/// y = x m, with a draw for each plane; the rank has `here` elements of each.
template <class T, class Stream>
struct DropPlanes {
  Stream stream;
  Drop<T> drop;
  GlobalRuns runs;
  std::size_t plane;
  std::size_t here;
  const T* x;
  T* y;

  constexpr void operator()(std::size_t p) const {
    const std::size_t first = p * here;
    const float u = stream.uniform(runs.global(first) / plane);
    for (std::size_t i = first; i < first + here; ++i) y[i] = drop(x[i], u);
  }
};

/// A draw for each element.
struct MaskOfElements {
  template <class Frame, class T, class In, class Out>
  static void apply(Frame& frame, const Drop<T>& drop, const In& in, const Out& out) {
    detail::for_each_piece(
        frame.backend(), global_runs(frame.held_part(in)),
        DropElements<T, decltype(frame.random())>{frame.random(), drop, in.data(), out.data()});
  }
};

/// A draw for each plane of images.
struct MaskOfPlanes {
  template <class Frame, class T, class In, class Out>
  static void apply(Frame& frame, const Drop<T>& drop, const In& in, const Out& out) {
    const HeldPart held = frame.held_part(in);
    const std::size_t plane = held.whole.elements(2, held.whole.rank());
    const std::size_t here = in.local().elements(2, in.local().rank());
    frame.backend().for_each(
        here == 0 ? 0 : in.size() / here,
        DropPlanes<T, decltype(frame.random())>{frame.random(), drop, global_runs(held), plane,
                                                here, in.data(), out.data()});
  }
};

/// All dropout layers. Backward draws the mask of forward again.
template <std::uint32_t Numerator, std::uint32_t Denominator, class Mask>
struct Drops : KeepsLayout {
  static_assert(Numerator < Denominator,
                "Dropout<Numerator, Denominator> drops that fraction of the elements: it must be "
                "at least 0 and less than 1, as in Dropout<1, 4>.");

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool in_place = true;
  static constexpr bool random = true;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    if (Numerator == 0 || !frame.training())
      detail::copy(frame.backend(), x.data(), x.size(), y.data());
    else
      Mask::apply(frame, Drop<T>(static_cast<double>(Numerator) / Denominator), x, y);
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    forward(frame, dy, dx);
  }
  ///@}
};

}  // namespace detail

/// In training y = x m / (1 - p), where m is 0 with probability p = Numerator / Denominator and
/// else 1; in evaluation y = x. A dropped element is 0 even if it was an infinity or a NaN; so is
/// its gradient. m is drawn by seed, layer, step and *global* element. So ranks that hold the same
/// tensor draw the same mask, shards draw their part of it, and backward draws it again instead of
/// saving it.
/// layout   L -> L, for every L but Partial
/// sends    nothing
/// source   Srivastava et al. 2014, section 10 (scaled in training)
template <std::uint32_t Numerator, std::uint32_t Denominator>
struct Dropout : detail::Drops<Numerator, Denominator, detail::MaskOfElements> {};

/// Dropout of whole planes of images [batch, channel, ...]: m is drawn for each sample and channel.
/// layout   layout, sends    as Dropout
/// throws   shape_error if x does not begin with batch and channel
/// source   Tompson et al. 2015; torch.nn.Dropout2d
template <std::uint32_t Numerator, std::uint32_t Denominator>
struct ChannelDropout : detail::Drops<Numerator, Denominator, detail::MaskOfPlanes> {
  ///@{
  /// As `Layer` says.
  constexpr Shape output_shape(const Shape& x) const {
    const bool fits = x.rank() >= 2 && x[0].axis == Axis::batch && x[1].axis == Axis::channel;
    if (x.rank() > 0 && !fits) {
      throw shape_error({"the input is a tensor ", x,
                         ", but dropout by channel takes images [batch, channel, ...]"});
    }
    return x;
  }
  ///@}
};

}  // namespace shardwise
