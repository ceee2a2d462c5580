#pragma once
// Nearest upsampling: repeats every element along each axis of space.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/detail/image_windows.hpp"
#include "shardwise/layers/detail/planes.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/window_options.hpp"

namespace shardwise {

namespace detail {

/// The windows of an upsampling by these factors along the axes of space.
template <std::size_t Axes, PerAxis Scale>
consteval std::array<Window, Axes> upsampling_windows() {
  static_assert(Scale.fits(Axes) && Scale.least() > 0,
                "Upsampling repeats every element at least once along every axis of space: give "
                "one number for all axes, or one for each: Upsample2d<2>, Upsample2d<{2, 3}>.");
  std::array<Window, Axes> windows;
  for (std::size_t i = 0; i < Axes; ++i)
    windows[i].repeats = static_cast<std::size_t>(Scale.values[i]);
  return windows;
}

/// A rank's part of an axis of the small image and of the large one.
struct UpsampledAxis {
  std::size_t small = 1;    ///< elements of the small image
  std::size_t large = 1;    ///< elements of the large image
  std::size_t repeats = 1;  ///< of each small element
  std::size_t skipped = 0;  ///< repeats of its first small element that are on the rank before

  /// The small element of large element o.
  constexpr std::size_t source(std::size_t o) const { return (o + skipped) / repeats; }
  ///@{
  /// The large elements that repeat small element i: the first of them, and how many there are.
  constexpr std::size_t first(std::size_t i) const {
    return i * repeats - std::min(i * repeats, skipped);
  }
  constexpr std::size_t count(std::size_t i) const {
    const std::size_t end = std::min(first(i + 1), large);
    return end - std::min(first(i), end);
  }
  ///@}
};

/// The axes of space, outermost first; an axis that images lack has one element.
struct UpsampledSpace {
  UpsampledAxis d, h, w;
};

/// y[r, o] = x[source of r, source of o] for every element o of row r of all planes. Each element
/// is repeated `Repeats` times along a row: a division by a constant costs little.
template <class T, std::size_t Repeats>
struct UpsampledRows {
  UpsampledSpace space;
  const T* x;
  T* y;

  constexpr auto operator()(std::size_t r) const {
    const UpsampledSpace& s = space;
    const std::size_t slice = r / s.h.large, plane = slice / s.d.large;
    const std::size_t small_slice = plane * s.d.small + s.d.source(slice % s.d.large);
    const std::size_t row = small_slice * s.h.small + s.h.source(r % s.h.large);
    return [from = x + row * s.w.small, to = y + r * s.w.large,
            skipped = s.w.skipped](std::size_t o) { to[o] = from[(o + skipped) / Repeats]; };
  }
};

/// dx[r, i] = the sum of dy over all elements that repeat element i of row r of all planes.
template <class T, std::size_t Repeats>
struct UpsampledRowsBack {
  UpsampledSpace space;
  const T* dy;
  T* dx;

  constexpr auto operator()(std::size_t r) const {
    const UpsampledSpace& s = space;
    const std::size_t slice = r / s.h.small, plane = slice / s.d.small;
    const std::size_t z = slice % s.d.small, y = r % s.h.small;
    const std::size_t row = (plane * s.d.large + s.d.first(z)) * s.h.large + s.h.first(y);
    return [from = dy + row * s.w.large, to = dx + r * s.w.small, slices = s.d.count(z),
            rows = s.h.count(y), slice_size = s.h.large * s.w.large, w = s.w](std::size_t i) {
      accumulate_t<T> sum = 0;
      for (std::size_t k = 0; k < slices; ++k)
        for (std::size_t j = 0; j < rows; ++j)
          for (std::size_t repeat = 0; repeat < Repeats; ++repeat) {
            // Behind all others if it is on the rank before.
            const std::size_t o = i * Repeats + repeat - w.skipped;
            if (o < w.large)
              sum += static_cast<accumulate_t<T>>(from[k * slice_size + j * w.large + o]);
          }
      to[i] = static_cast<T>(sum);
    };
  }
};

/// See `Upsample2d`.
template <auto Windows>
class Upsample : public LinearInWindows<Windows> {
 public:
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;

  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<
      !std::same_as<Offered, Partial>, windowed_t<Windows, Offered>,
      std::conditional_t<std::same_as<Wanted, Replicated>, Replicated, summed_planes_t<Wanted>>>;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    const UpsampledSpace space = space_of(frame, x, y);
    for_each_in_rows(frame.backend(), y.rows(), y.columns(),
                     UpsampledRows<typename Frame::dtype, repeats>{space, x.data(), y.data()});
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    const UpsampledSpace space = space_of(frame, dx, dy);
    for_each_in_rows(
        frame.backend(), dx.rows(), dx.columns(),
        UpsampledRowsBack<typename Frame::dtype, repeats>{space, dy.data(), dx.data()});
  }
  ///@}

 private:
  static constexpr std::size_t repeats = Windows.back().repeats;  // along a row

  template <class Frame, class X, class Y>
  static UpsampledSpace space_of(const Frame& frame, const X& x, const Y& y) {
    constexpr std::size_t axes = Windows.size();
    std::array<UpsampledAxis, 3> here;
    for (std::size_t i = 0; i < axes; ++i) {
      Interval large = held_of_axis(y, 2 + i);
      if (space_axis(i, axes) == Axis::height) large.offset += frame.rows_begin().out;
      here[3 - axes + i] = {x.local()[2 + i].extent(), large.size, Windows[i].repeats,
                            large.offset % Windows[i].repeats};
    }
    return {here[0], here[1], here[2]};
  }
};

}  // namespace detail

///@{
/// y[n, c, o] = x[n, c, o / scale] on images [batch, channel, S...], rounded down along every axis
/// of S, [W], [H, W] or [D, H, W]; y is larger by `scale`. The gradient of an element is the sum
/// over its repeats. The layer keeps the layout of the images, and an axis of space may be split:
///
///                          x per rank                            y per rank
/// Sharded<height>, ...     the rows for its block of H scale     its block of H scale
/// all others               their part of [B, C, H...]            the same part, larger
///
/// layout   L -> L;   if A is an axis of space that is scaled, Sharded<A> becomes
///          Haloed<A, Window> -> Sharded<A>;   Partial becomes the preferred layout if that is
///          Replicated or splits batch or channel, else Invariant: the small image is summed, not
///          the large one
/// saves    nothing
/// sends    nothing
/// throws   shape_error if x is not such images
/// source   torch.nn.Upsample with mode='nearest' and a whole scale_factor
///
/// On [batch, channel, width], [batch, channel, height, width] and [batch, channel, depth, height,
/// width]: `Upsample2d<2>`, `Upsample2d<{1, 3}>`.
template <PerAxis Scale>
using Upsample1d = detail::Upsample<detail::upsampling_windows<1, Scale>()>;
template <PerAxis Scale>
using Upsample2d = detail::Upsample<detail::upsampling_windows<2, Scale>()>;
template <PerAxis Scale>
using Upsample3d = detail::Upsample<detail::upsampling_windows<3, Scale>()>;
///@}

/// "Upsample2d<2x2>".
template <auto Windows>
struct NameOf<detail::Upsample<Windows>> {
  static std::string name() {
    std::string scale;
    for (const Window& window : Windows)
      scale += (scale.empty() ? "" : "x") + std::to_string(window.repeats);
    return "Upsample" + std::to_string(Windows.size()) + "d<" + scale + '>';
  }
};

}  // namespace shardwise
