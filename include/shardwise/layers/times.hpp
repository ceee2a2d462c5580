#pragma once
// Products of two values, element by element.

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/detail/times_slope.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/layers/stream.hpp"

namespace shardwise {

namespace detail {

/// y = F(a) b.
template <class F, class T>
struct Multiplied {
  const T* a;
  const T* b;
  T* y;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    y[i] = static_cast<T>(F::value(static_cast<A>(a[i])) * static_cast<A>(b[i]));
  }
};

/// da = dy b F'(a).
template <class F, class T>
struct MultipliedBack {
  const T* a;
  const T* b;
  const T* dy;
  T* da;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    const A through_b = static_cast<A>(dy[i]) * static_cast<A>(b[i]);
    da[i] = static_cast<T>(through_b * slope_at<F>(static_cast<A>(a[i])));
  }
};

}  // namespace detail

/// y = F(a) b, element by element, for a function F of `activations`; a is the first operand. It is
/// the gated product of a perceptron, in a Join:
///
///     Join<Times<activations::Silu>, ColumnParallelLinear<E, H>, ColumnParallelLinear<E, H>>
///
/// layout   L -> L, for every L but Partial and Replicated; b is converted to the layout of a
/// saves    a and b
/// sends    nothing
/// throws   shape_error if the shapes are not equal
/// source   Shazeer, "GLU variants improve transformer", 2020
template <class F = activations::Identity>
struct Times : KeepsStream {
  ///@{
  /// As `Merge` says.
  static constexpr Saves saves = Saves::input;

  constexpr Shape output_shape(const std::array<Shape, 2>& x) const {
    if (x[0].rank() == 0) return x[1];
    if (x[1].rank() > 0 && !(x[0] == x[1])) {
      throw shape_error({"a Times is given tensors ", x[0], " and ", x[1],
                         ": what it multiplies must have the same shape"});
    }
    return x[0];
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    const auto& [a, b] = x;
    frame.backend().for_each(
        y.size(), detail::Multiplied<F, typename Frame::dtype>{a.data(), b.data(), y.data()});
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    const auto& [a, b] = x;
    const auto& [da, db] = dx;
    using T = typename Frame::dtype;
    if (da.data() != nullptr)
      frame.backend().for_each(
          dy.size(), detail::MultipliedBack<F, T>{a.data(), b.data(), dy.data(), da.data()});
    if (db.data() != nullptr)
      frame.backend().for_each(dy.size(), detail::Multiplied<F, T>{a.data(), dy.data(), db.data()});
  }
  ///@}
};

/// "Times<silu>"; "Times" for the identity.
template <class F>
struct NameOf<Times<F>> {
  static std::string name() {
    if constexpr (std::is_same_v<F, activations::Identity>) return "Times";
    return "Times<" + detail::function_name<F>() + '>';
  }
};

}  // namespace shardwise
