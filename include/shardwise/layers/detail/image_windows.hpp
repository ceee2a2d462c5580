#pragma once
// Windows that slide along the axes of space of images [batch, channel, (depth,) (height,) width],
// for every split of the images.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/backend/pooling.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layers/detail/convolution_checks.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/rows_begin.hpp"
#include "shardwise/layout/window.hpp"

namespace shardwise::detail {

/// The elements along a split axis that a rank needs for its block of the outputs.
template <Axis A, Window W>
struct read_through {
  using type = std::conditional_t<W.is_pointwise(), Sharded<A>, Haloed<A, W>>;
};

/// The input layout of a layer with these windows on images in the layout L: if L splits an axis
/// along which the windows slide, it includes what they read beyond a rank's block.
template <auto Windows, Layout L, std::size_t Index = 0>
struct windowed {
  using type = L;
};
template <auto Windows, Axis A, std::size_t Index>
requires(Index < Windows.size()) struct windowed<Windows, Sharded<A>, Index> {
  using type = typename std::conditional_t<A == space_axis(Index, Windows.size()),
                                           read_through<A, Windows[Index]>,
                                           windowed<Windows, Sharded<A>, Index + 1>>::type;
};
template <auto Windows, Layout L>
using windowed_t = typename windowed<Windows, L>::type;

/// The output layout of such a layer for images in the layout In.
template <Layout In>
struct outputs_of {
  using type = In;
};
template <Axis A, Window W>
struct outputs_of<Haloed<A, W>> {
  using type = Sharded<A>;
};
template <Layout In>
using outputs_of_t = typename outputs_of<In>::type;

/// The rank's part of an axis of the tensor in view.
template <class V>
Interval held_of_axis(const V& view, std::size_t axis) {
  using L = typename V::layout;
  if constexpr (SplitLayout<L>) {
    if (split_position<L>(view.global()) == axis)
      return local_block<L>(view.global(), view.place());
  }
  return {0, view.global()[axis].extent()};
}

/// The taps of a window on a rank's part of an axis of the input, for its block of the outputs. A
/// rank has all elements that its windows read, so there is padding only if its first window begins
/// before them.
constexpr SpatialAxis axis_here(const Window& window, const Interval& input,
                                const Interval& outputs) {
  const std::size_t begin = window.before + input.offset;  // in the padded axis, as is `first`
  const std::size_t first = outputs.offset * window.stride;
  return {input.size,    outputs.size,    window.kernel,
          window.stride, window.dilation, begin - std::min(begin, first)};
}

/// The same for every axis of space of x and y, or of their gradients. Over `context` of a mesh
/// their rows begin where `rows` says.
template <auto Windows, class X, class Y>
std::array<SpatialAxis, 3> space_of(const X& x, const Y& y, const RowsBegin& rows) {
  constexpr std::size_t axes = Windows.size();
  std::array<SpatialAxis, 3> space;
  for (std::size_t i = 0; i < axes; ++i) {
    Interval in = held_of_axis(x, 2 + i), out = held_of_axis(y, 2 + i);
    if (space_axis(i, axes) == Axis::height) {
      in.offset += rows.in;
      out.offset += rows.out;
    }
    space[3 - axes + i] = axis_here(Windows[i], in, out);
  }
  return space;
}

/// One call on the rank's part of x and y, or of their gradients.
template <auto Windows, class X, class Y>
ConvolutionCall call_on(const X& x, const Y& y, const RowsBegin& rows) {
  return {x.local()[0].extent(), space_of<Windows>(x, y, rows)};
}

/// Throws shape_error unless x is images with this number of axes of space, none of them empty.
constexpr void check_images(const Shape& x, std::size_t axes) {
  bool fits = x.rank() == axes + 2 && x[0].axis == Axis::batch && x[1].axis == Axis::channel;
  for (std::size_t i = 0; i < axes && fits; ++i)
    fits = x[2 + i].axis == space_axis(i, axes) && x[2 + i].grain == 1 && x[2 + i].extent() > 0;
  if (fits) return;
  std::string wanted = "[batch, channel";
  for (std::size_t i = 0; i < axes; ++i) wanted += ", " + std::string(name(space_axis(i, axes)));
  throw shape_error({"the input is a tensor ", x, ", but the layer pools images ", wanted,
                     "] of at least one element along every axis of space, of grain 1"});
}

/// The shape of the output for images of shape x.
/// throws   shape_error if x is not such images, or smaller than a window
template <auto Windows>
constexpr Shape pooled_shape(const Shape& x) {
  if (x.rank() == 0) return x;
  check_images(x, Windows.size());
  Shape y = x;
  for (std::size_t i = 0; i < Windows.size(); ++i) {
    const Dim& in = x[2 + i];
    if (!in.known()) continue;
    const std::size_t outputs = Windows[i].outputs(in.extent());
    if (outputs == 0) {
      throw shape_error({"the input is a tensor ", x, ", whose ", name(in.axis),
                         " is too small for a window of ", Windows[i], ", which reaches over ",
                         Windows[i].reach(), ": take larger images or a smaller window"});
    }
    y[2 + i] = {in.axis, outputs};
  }
  return y;
}

/// Layouts and shapes of a layer that is linear in the elements that its windows read, so that its
/// input may be a summand.
template <auto Windows>
struct LinearInWindows {
  ///@{
  /// As `Layer` says.
  static constexpr bool keeps_features = true;

  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<std::same_as<Wanted, Partial>, Invariant, Wanted>;
  template <Layout Offered, Layout Wanted>
  using input_layout = windowed_t<Windows, Offered>;
  template <Layout In>
  using output_layout = outputs_of_t<In>;

  constexpr Shape output_shape(const Shape& x) const { return pooled_shape<Windows>(x); }
  ///@}
};

/// One call on the rank's part.
template <auto Windows, class Frame, class X, class Y>
PoolingCall pooling_call(const Frame& frame, const X& x, const Y& y) {
  return {call_on<Windows>(x, y, frame.rows_begin()), x.local()[1].extent()};
}

}  // namespace shardwise::detail
