#pragma once
// The mean of every plane.

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

template <class L>
inline constexpr bool is_space_split =
    std::same_as<L, Sharded<Axis::depth>> || std::same_as<L, Sharded<Axis::height>> ||
    std::same_as<L, Sharded<Axis::width>>;

/// The elements of plane p.
template <class T>
struct PlaneTerms {
  std::size_t here;
  const T* x;

  constexpr auto operator()(std::size_t p) const {
    return [plane = x + p * here](std::size_t i) { return static_cast<accumulate_t<T>>(plane[i]); };
  }
};

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

/// [batch, channel, ...] -> the same axes, with extent 1 for those of space: the mean over them. If
/// an axis of space is split, each rank gives the sum of its part, divided by the number of
/// elements of all ranks: a summand of the mean.
///
/// layout   Sharded<depth>, Sharded<height>, Sharded<width> -> Partial;   L -> L for any other L,
///          also Partial, since the layer is linear
/// sends    nothing
/// throws   shape_error if x does not begin with batch and channel, or has empty planes
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

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    bool fits = x.rank() > 2 && x[0].axis == Axis::batch && x[1].axis == Axis::channel;
    for (std::size_t i = 2; i < x.rank(); ++i) fits = fits && x[i].extent() > 0;
    if (!fits) {
      throw shape_error(
          {"the input is a tensor ", x,
           ", but the layer averages the planes of images [batch, channel, ...], which "
           "must have elements"});
    }
    Shape y{x[0], x[1]};
    for (std::size_t i = 2; i < x.rank(); ++i) y.append({x[i].axis, 1});
    return y;
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    const std::size_t here = plane(x.local());
    const auto count = static_cast<A>(plane(x.global()));
    detail::reduce_each(frame.backend(), y.size(), here, A(0),
                        detail::PlaneTerms<T>{here, x.data()}, detail::Plus{},
                        detail::PutPlaneMean<T>{count, y.data()});
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    const std::size_t here = plane(dx.local());
    const auto count = static_cast<accumulate_t<T>>(plane(dx.global()));
    detail::for_each_in_rows(frame.backend(), dy.size(), here,
                             detail::PlaneShares<T>{here, count, dy.data(), dx.data()});
  }
  ///@}

 private:
  static std::size_t plane(const Shape& x) { return x.elements(2, x.rank()); }
};

}  // namespace shardwise
