#pragma once
// The maximum of every plane.

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/image_windows.hpp"
#include "shardwise/layers/detail/planes.hpp"
#include "shardwise/layers/detail/row_exchange.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

/// The rank's part of a plane: along depth, height and width the elements that it has, the first of
/// them, and all.
struct PlanePart {
  std::array<std::size_t, 3> here{1, 1, 1};
  std::array<std::size_t, 3> first{};
  std::array<std::size_t, 3> all{1, 1, 1};

  template <class Frame, class X>
  static PlanePart of(const Frame& frame, const X& x) {
    PlanePart part;
    const HeldPart held = frame.held_part(x);
    const std::size_t axes = held.whole.rank() - 2;
    for (std::size_t i = 0; i < axes; ++i) {
      part.here[3 - axes + i] = held.local[2 + i].extent();
      part.first[3 - axes + i] = held.begin[2 + i];
      part.all[3 - axes + i] = held.whole[2 + i].extent();
    }
    return part;
  }

  constexpr std::size_t size() const { return here[0] * here[1] * here[2]; }

  /// The number in the whole plane of the rank's element i.
  constexpr std::size_t global(std::size_t i) const {
    const std::size_t row = i / here[2], d = row / here[1] + first[0];
    return (d * all[1] + row % here[1] + first[1]) * all[2] + i % here[2] + first[2];
  }

  /// The rank's number of element g of the whole plane; at least `size()` if another rank has it.
  constexpr std::size_t local(std::size_t g) const {
    const std::size_t row = g / all[2];
    const std::size_t d = row / all[1] - first[0], h = row % all[1] - first[1],
                      w = g % all[2] - first[2];
    return d < here[0] && h < here[1] && w < here[2] ? (d * here[1] + h) * here[2] + w : size();
  }
};

/// The number in its plane of an element that is the largest one, else infinity.
template <class T>
struct PlaceOfLargest {
  PlanePart part;
  const T* x;
  const accumulate_t<T>* largest;

  constexpr auto operator()(std::size_t p) const {
    return [of = part, plane = x + p * part.size(), most = largest[p]](std::size_t i) {
      const auto value = static_cast<accumulate_t<T>>(plane[i]);
      const bool is_nan = value != value && most != most;  // a maximum may leave NaN out
      return value == most || is_nan ? static_cast<double>(of.global(i))
                                     : std::numeric_limits<double>::infinity();
    };
  }
};

/// The smaller one.
struct Smallest {
  template <class A>
  constexpr A operator()(A a, A b) const {
    return b < a ? b : a;
  }
};

/// y = the largest of each plane.
template <class T>
struct PutLargest {
  const accumulate_t<T>* largest;
  T* y;

  constexpr void operator()(std::size_t p) const { y[p] = static_cast<T>(largest[p]); }
};

/// dx = dy at the place of the largest, on the rank that has it. The rest of dx is zero already.
template <class T>
struct GradientOfLargest {
  PlanePart part;
  const double* places;
  const T* dy;
  T* dx;

  constexpr void operator()(std::size_t p) const {
    const std::size_t i = part.local(static_cast<std::size_t>(places[p]));
    if (i < part.size()) dx[p * part.size() + i] = dy[p];
  }
};

}  // namespace detail

/// Images [batch, channel, ...] -> the same axes, with extent 1 for those of space: the largest
/// element. Of equal ones the first in memory of the whole plane counts, and only it gets the
/// gradient, on the rank that has it.
///
/// layout   Sharded<depth>, Sharded<height>, Sharded<width> -> Invariant;   L -> L for any other L
///          but Partial, which becomes the preferred layout if that splits batch or channel, else
///          Invariant
/// saves    the place of the largest element of each plane, not its input
/// sends    if an axis of space is split, or if ranks along `context` have different rows, forward
///          two all-reduces of one number for each plane: the largest element, and its place in
///          double
/// throws   shape_error if x is not images [batch, channel, (depth,) (height,) width], or has empty
///          planes
/// source   torch.nn.AdaptiveMaxPool2d(1); ONNX operator GlobalMaxPool
class GlobalMaxPool {
  template <Layout In>
  using OfRanks = std::conditional_t<detail::is_space_split<In>, Redistribute<Partial, Invariant>,
                                     Redistribute<In, In>>;

 public:
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool keeps_features = true;

  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<std::same_as<Wanted, Partial>, Invariant, Wanted>;
  template <Layout Offered, Layout Wanted>
  using input_layout =
      std::conditional_t<!std::same_as<Offered, Partial>, Offered, detail::summed_planes_t<Wanted>>;
  template <Layout In>
  using output_layout = std::conditional_t<detail::is_space_split<In>, Invariant, In>;

  template <Layout In>
  using exchanges = std::tuple<Exchange<OfRanks<In>, Reduction::max>,
                               Exchange<OfRanks<In>, Reduction::min, double>>;

  constexpr Shape output_shape(const Shape& x) const { return detail::one_of_each_plane(x); }

  constexpr std::array<Shape, 2> exchange_shapes(const Shape& x) const {
    return {detail::number_of_each_plane(x), detail::number_of_each_plane(x)};
  }

  /// The place of the largest element of each plane.
  template <class Frame>
  using saved = decltype(std::declval<Frame&>().template exchange<1>(
      std::declval<Frame&>().template exchange_input<1>()));

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    constexpr double nowhere = std::numeric_limits<double>::infinity();
    const auto part = detail::PlanePart::of(frame, x);
    const detail::RowExtents planes{y.size(), part.size()};
    const auto largest =
        detail::exchanged_rows<0>(frame, planes, -std::numeric_limits<A>::infinity(),
                                  detail::PlaneTerms<T>{part.size(), x.data()}, detail::Largest{});
    const A* const of_planes = largest.view().data();
    auto places = detail::exchanged_rows<1>(frame, planes, nowhere,
                                            detail::PlaceOfLargest<T>{part, x.data(), of_planes},
                                            detail::Smallest{});
    frame.backend().for_each(y.size(), detail::PutLargest<T>{of_planes, y.data()});
    if (Frame::input_gradient && frame.training()) frame.saved() = std::move(places);
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    const auto places = std::exchange(frame.saved(), {});
    detail::fill(frame.backend(), dx.data(), dx.size(), T{});
    frame.backend().for_each(
        dy.size(), detail::GradientOfLargest<T>{detail::PlanePart::of(frame, dx),
                                                places.view().data(), dy.data(), dx.data()});
  }
  ///@}
};

}  // namespace shardwise
