#pragma once
// Layers that apply one function to every element.

#include <cstddef>
#include <cstdint>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/detail/times_slope.hpp"
#include "shardwise/backend/unfused_activations.hpp"
#include "shardwise/layers/layer.hpp"

namespace shardwise {

namespace detail {

/// y = f(x).
template <class F, class T>
struct Applied {
  const T* x;
  T* y;

  constexpr void operator()(std::size_t i) const {
    y[i] = static_cast<T>(F::value(static_cast<accumulate_t<T>>(x[i])));
  }
};

}  // namespace detail

/// y = f(x), element by element, for a function of `activations`.
/// layout   L -> L, for every L but Partial
/// sends    nothing
template <class F>
struct Elementwise : KeepsLayout {
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = F::slope_from_output ? Saves::output : Saves::input;
  static constexpr Activation activation = F::kind;
  static constexpr bool in_place = F::slope_from_output;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    frame.backend().for_each(x.size(),
                             detail::Applied<F, typename Frame::dtype>{x.data(), y.data()});
  }
  ///@}

  /// dx = dy f'; f' is computed from the saved tensor.
  template <class Frame, class S, class DY, class DX>
  void backward(Frame& frame, const S& saved, const DY& dy, const DX& dx) const {
    frame.backend().for_each(dy.size(), detail::TimesSlope<F, typename Frame::dtype>{
                                            saved.data(), dy.data(), dx.data()});
  }
};

/// max(x, 0).
struct Relu : Elementwise<activations::Relu> {};
/// x P(x), P the distribution function of the standard normal, by the error function.
struct Gelu : Elementwise<activations::Gelu> {};
/// The approximation of Gelu by tanh.
struct GeluTanh : Elementwise<activations::GeluTanh> {};
/// x / (1 + e^-x).
struct Silu : Elementwise<activations::Silu> {};
/// The hyperbolic tangent.
struct Tanh : Elementwise<activations::Tanh> {};
/// 1 / (1 + e^-x).
struct Sigmoid : Elementwise<activations::Sigmoid> {};
/// x for x > 0, else x Numerator / Denominator: `LeakyRelu<>` has the slope 0.01 below 0,
/// `LeakyRelu<1, 5>` the slope 0.2. `PRelu` learns it.
template <std::uint32_t Numerator = 1, std::uint32_t Denominator = 100>
struct LeakyRelu : Elementwise<activations::LeakyRelu<Numerator, Denominator>> {};
/// x for x > 0, else alpha (e^x - 1) with alpha = Numerator / Denominator, by default 1.
template <std::uint32_t Numerator = 1, std::uint32_t Denominator = 1>
struct Elu : Elementwise<activations::Elu<Numerator, Denominator>> {};
/// log(1 + e^x).
struct Softplus : Elementwise<activations::Softplus> {};
/// x max(0, min(6, x + 3)) / 6.
struct HardSwish : Elementwise<activations::HardSwish> {};

}  // namespace shardwise
