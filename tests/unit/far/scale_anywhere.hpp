#pragma once
// A layer of a user's whose loops run where the tensors are.

#include <cstddef>

#include "consumer/own_layer/scale.hpp"
#include "shardwise/shardwise.hpp"

// begin: layer
/// y = s x of element i, with the factor s of its feature.
template <class T>
struct ScaleElement {
  const T* x;
  const T* factors;
  std::size_t features;
  T* y;

  constexpr void operator()(std::size_t i) const {
    using A = sw::accumulate_t<T>;
    y[i] = static_cast<T>(static_cast<A>(x[i]) * static_cast<A>(factors[i % features]));
  }
};

/// The gradient of the factor of feature c.
template <class T>
struct FactorGradient {
  const T* x;
  const T* dy;
  std::size_t size, features;
  sw::Write write;
  T* gradients;

  constexpr void operator()(std::size_t c) const {
    using A = sw::accumulate_t<T>;
    A sum = write == sw::Write::add ? static_cast<A>(gradients[c]) : A(0);
    for (std::size_t i = c; i < size; i += features)
      sum += static_cast<A>(dy[i]) * static_cast<A>(x[i]);
    gradients[c] = static_cast<T>(sum);
  }
};

struct ScaleAnywhere : Scale {
  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    scale(frame, x, y);
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, X x, DY dy, DX dx) const {
    using T = typename Frame::dtype;
    const auto [gradient] = frame.gradients();
    frame.backend().for_each(
        x.columns(), FactorGradient<T>{x.data(), dy.data(), x.size(), x.columns(), frame.write(),
                                       gradient.data()});
    if constexpr (Frame::input_gradient) scale(frame, dy, dx);
  }

 private:
  template <class Frame, class X, class Y>
  static void scale(Frame& frame, X x, Y y) {
    using T = typename Frame::dtype;
    const auto [factor] = frame.parameters();
    frame.backend().for_each(x.size(),
                             ScaleElement<T>{x.data(), factor.data(), x.columns(), y.data()});
  }
};
// end: layer
