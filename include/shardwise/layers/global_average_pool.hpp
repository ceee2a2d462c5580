#pragma once
// The mean of every plane.

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/planes.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

/// The sum of a plane's elements, divided by `count`.
template <class T>
struct PutPlaneMean {
  accumulate_t<T> count;
  T* y;

  constexpr void operator()(std::size_t p, accumulate_t<T> sum) const {
    y[p] = static_cast<T>(sum / count);
  }
};

/// The gradient of each of these elements in backward.
template <class T>
struct PlaneShares {
  std::size_t here;
  accumulate_t<T> count;
  const T* dy;
  T* dx;

  constexpr auto operator()(std::size_t p) const {
    const T share = static_cast<T>(static_cast<accumulate_t<T>>(dy[p]) / count);
    return [plane = dx + p * here, share](std::size_t i) { plane[i] = share; };
  }
};

}  // namespace detail

/// Images [batch, channel, ...] -> the same axes, with extent 1 for those of space: the mean over
/// them. If an axis of space is split, each rank gives the sum of its part, divided by the number
/// of elements of all ranks: a summand of the mean.
///
/// layout   Sharded<depth>, Sharded<height>, Sharded<width> -> Partial;   L -> L for any other L,
///          also Partial, since the layer is linear
/// sends    nothing
/// throws   shape_error if x is not images [batch, channel, (depth,) (height,) width], or has empty
///          planes
/// source   ONNX operator GlobalAveragePool
struct GlobalAveragePool {
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool keeps_features = true;

  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<std::same_as<Wanted, Partial>, Invariant, Wanted>;
  template <Layout Offered, Layout Wanted>
  using input_layout = Offered;
  template <Layout In>
  using output_layout = std::conditional_t<detail::is_space_split<In>, Partial, In>;

  constexpr Shape output_shape(const Shape& x) const { return detail::one_of_each_plane(x); }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    const std::size_t here = detail::plane_of(x.local());
    const auto count = static_cast<A>(detail::plane_of(frame.held_part(x).whole));
    detail::reduce_each(frame.backend(), y.size(), here, A(0),
                        detail::PlaneTerms<T>{here, x.data()}, detail::Plus{},
                        detail::PutPlaneMean<T>{count, y.data()});
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    const std::size_t here = detail::plane_of(dx.local());
    const auto count = static_cast<accumulate_t<T>>(detail::plane_of(frame.held_part(dx).whole));
    detail::for_each_in_rows(frame.backend(), dy.size(), here,
                             detail::PlaneShares<T>{here, count, dy.data(), dx.data()});
  }
  ///@}
};

}  // namespace shardwise
