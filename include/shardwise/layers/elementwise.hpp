#pragma once
// Layers that apply one function to every element.

#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/layers/layer.hpp"

namespace shardwise {

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
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    frame.backend().for_each(x.size(), [in = x.data(), out = y.data()](std::size_t i) {
      out[i] = static_cast<T>(F::value(static_cast<A>(in[i])));
    });
  }
  ///@}

  /// dx = dy f'; f' from what is saved.
  template <class Frame, class S, class DY, class DX>
  void backward(Frame& frame, const S& saved, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    frame.backend().for_each(
        dy.size(), [at = saved.data(), in = dy.data(), out = dx.data()](std::size_t i) {
          out[i] = static_cast<T>(static_cast<A>(in[i]) * F::slope(static_cast<A>(at[i])));
        });
  }
};

/// max(x, 0).
struct Relu : Elementwise<activations::Relu> {};
/// x P(x), P the distribution function of the standard normal, by the error function.
struct Gelu : Elementwise<activations::Gelu> {};
/// The same, approximated by tanh.
struct GeluTanh : Elementwise<activations::GeluTanh> {};
/// x / (1 + e^-x).
struct Silu : Elementwise<activations::Silu> {};
/// The hyperbolic tangent.
struct Tanh : Elementwise<activations::Tanh> {};
/// 1 / (1 + e^-x).
struct Sigmoid : Elementwise<activations::Sigmoid> {};

}  // namespace shardwise
