#pragma once
// y = s x, with a factor s for each feature.

#include <array>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/shardwise.hpp"

namespace sw = shardwise;

// begin: parameters
/// If features are split, a rank has the factors of its features. If rows are split, it has all
/// factors, and the gradients of its own rows.
struct ScaleParameters {
  using Split = sw::Sharded<sw::Axis::feature>;

  template <sw::Layout In>
  using of = sw::ParameterUse<
      std::conditional_t<std::same_as<In, Split>, Split, sw::Invariant>,
      std::conditional_t<std::same_as<In, Split> || std::same_as<In, sw::Invariant>, In,
                         sw::Replicated>>;
};
// end: parameters

// begin: layer
struct Scale : sw::KeepsLayout {
  static constexpr sw::Saves saves = sw::Saves::input;

  template <sw::Layout In>
  using parameters = std::tuple<ScaleParameters::of<In>>;

  constexpr std::array<sw::ParameterSpec, 1> parameter_specs(const sw::Shape& in) const {
    return {sw::ParameterSpec{"factor", sw::Shape{in.back()}, sw::init::ones}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    const auto [factor] = frame.parameters();
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor[i % x.columns()];
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, X x, DY dy, DX dx) const {
    using T = typename Frame::dtype;
    const auto [factor] = frame.parameters();
    const auto [gradient] = frame.gradients();
    for (std::size_t c = 0; c < dy.columns(); ++c) {
      T sum = frame.write() == sw::Write::add ? gradient[c] : T(0);
      for (std::size_t i = c; i < dy.size(); i += dy.columns()) sum += dy[i] * x[i];
      gradient[c] = sum;
    }
    if constexpr (Frame::input_gradient) {
      for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = dy[i] * factor[i % dy.columns()];
    }
  }
};
// end: layer

/// An error for a test to find: the gradients of a rank's own rows are declared complete.
struct WrongScale : Scale {
  template <sw::Layout>
  using parameters = std::tuple<sw::ParameterUse<sw::Invariant, sw::Invariant>>;
};
