#pragma once
// Images whose channels are multiplied by their own factors.

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/backend/detail/times_slope.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/planes.hpp"
#include "shardwise/layers/detail/row_exchange.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/layers/stream.hpp"

namespace shardwise {

namespace detail {

/// y = x F(s[p]) for every element of plane p. With dy in place of x it gives dx.
template <class F, class T>
struct ScaledPlanes {
  std::size_t plane;
  const T* x;
  const T* s;
  T* y;

  constexpr auto operator()(std::size_t p) const {
    using A = accumulate_t<T>;
    const A factor = F::value(static_cast<A>(s[p]));
    return [from = x + p * plane, to = y + p * plane, factor](std::size_t i) {
      to[i] = static_cast<T>(static_cast<A>(from[i]) * factor);
    };
  }
};

/// ds[p] = F'(s[p]) Σ x dy over plane p.
template <class F, class T>
struct PutFactorGradient {
  const T* s;
  T* ds;

  constexpr void operator()(std::size_t p, accumulate_t<T> sum) const {
    ds[p] = static_cast<T>(sum * slope_at<F>(static_cast<accumulate_t<T>>(s[p])));
  }
};

}  // namespace detail

/// y[n, c, p] = x[n, c, p] F(s[n, c]) on images x [batch, channel, S...], the first operand, with
/// factors s [batch, channel] or [batch, channel, 1, ...], as GlobalAveragePool gives; F is a
/// function of `activations`. A block of squeeze and excitation is a Join of it:
///
///     Join<ScaleChannels<activations::Sigmoid>, Identity,
///          Sequential<GlobalAveragePool, Squeeze, Relu, Excite>>       1 x 1 convolutions
///
/// layout   x: L -> L, for every L but Partial and Replicated;   s: as x, but Replicated if x is
///          split along space: then the gradient of s is one summand on each rank. Along `context`
///          the same.
/// saves    x and s
/// sends    nothing
/// throws   shape_error if x is not such images, or if s has other axes or extents
/// source   Hu, Shen, Sun, "Squeeze-and-excitation networks", 2018
template <class F = activations::Identity>
struct ScaleChannels : KeepsStream {
  ///@{
  /// As `Merge` says.
  static constexpr Saves saves = Saves::input;
  static constexpr bool keeps_shape = false;
  static constexpr bool keeps_features = true;

  template <std::size_t, Layout In>
  using operand = std::conditional_t<detail::is_space_split<In>, Replicated, In>;

  constexpr Shape output_shape(const std::array<Shape, 2>& operands) const {
    const auto& [x, s] = operands;
    if (x.rank() == 0 || s.rank() == 0) return x;
    bool fits = detail::is_images(x) && (s.rank() == 2 || s.rank() == x.rank());
    for (std::size_t i = 0; fits && i < s.rank(); ++i)
      fits = i < 2 ? s[i] == x[i] : s[i].axis == x[i].axis && s[i].extent() == 1;
    if (!fits) {
      throw shape_error({"a ScaleChannels is given images ", x, " and factors ", s,
                         ": it takes [batch, channel, ...], and factors of the same batch and "
                         "channels, with no axes of space or with those of extent 1"});
    }
    return x;
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& operands, const Y& y) const {
    const auto& [x, s] = operands;
    scale(frame, x, s, y);
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& operands, const DY& dy, const DX& gradients) const {
    using T = typename Frame::dtype;
    const auto& [x, s] = operands;
    const auto& [dx, ds] = gradients;
    if (dx.data() != nullptr) scale(frame, dy, s, dx);
    if (ds.data() != nullptr) {
      const std::size_t plane = plane_of(x);
      detail::reduce_each(frame.backend(), s.size(), plane, accumulate_t<T>(0),
                          detail::ProductTerms<T>{plane, x.data(), dy.data()}, detail::Plus{},
                          detail::PutFactorGradient<F, T>{s.data(), ds.data()});
    }
  }
  ///@}

 private:
  template <class V>
  static std::size_t plane_of(const V& images) {
    return images.local().elements(2, images.local().rank());
  }

  template <class Frame, class X, class S, class Y>
  static void scale(Frame& frame, const X& x, const S& s, const Y& y) {
    using T = typename Frame::dtype;
    const std::size_t plane = plane_of(x);
    detail::for_each_in_rows(frame.backend(), s.size(), plane,
                             detail::ScaledPlanes<F, T>{plane, x.data(), s.data(), y.data()});
  }
};

/// "ScaleChannels<sigmoid>".
template <class F>
struct NameOf<ScaleChannels<F>> {
  static std::string name() { return "ScaleChannels<" + detail::function_name<F>() + '>'; }
};

}  // namespace shardwise
