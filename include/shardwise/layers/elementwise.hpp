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
  static constexpr Saves saves = F::slope_from_output ? Saves::output : Saves::input;
  static constexpr Activation activation = F::kind;
  static constexpr bool in_place = F::slope_from_output;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    frame.backend().for_each(x.size(), [in = x.data(), out = y.data()](std::size_t i) {
      out[i] = static_cast<T>(F::value(static_cast<A>(in[i])));
    });
  }

  /// dx = dy f'; f' from what is saved.
  template <class Frame, class S, class DY, class DX>
  void backward(Frame& frame, S saved, DY dy, DX dx) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    frame.backend().for_each(
        dy.size(), [at = saved.data(), in = dy.data(), out = dx.data()](std::size_t i) {
          out[i] = static_cast<T>(static_cast<A>(in[i]) * F::slope(static_cast<A>(at[i])));
        });
  }
};

struct Relu : Elementwise<activations::Relu> {};
struct Gelu : Elementwise<activations::Gelu> {};          ///< with the error function
struct GeluTanh : Elementwise<activations::GeluTanh> {};  ///< approximated by tanh
struct Silu : Elementwise<activations::Silu> {};
struct Tanh : Elementwise<activations::Tanh> {};
struct Sigmoid : Elementwise<activations::Sigmoid> {};

}  // namespace shardwise
