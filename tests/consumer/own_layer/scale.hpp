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
/// Where features are split, a rank has the factors of its own; where rows are, all of them, and
/// the gradients of its rows alone.
struct ScaleParameters {
  using Split = sw::Sharded<sw::Axis::feature>;

  template <sw::Layout In>
  using of = sw::ParameterUse<
      std::conditional_t<std::same_as<In, Split>, Split, sw::Invariant>,
      std::conditional_t<std::same_as<In, Split> || std::same_as<In, sw::Invariant>, In,
                         sw::Replicated>>;
};
// end: parameters

/// The mistake that a test is to find: gradients of a rank's own rows, said to be whole.
struct GradientsOfOwnRows {
  template <sw::Layout>
  using of = sw::ParameterUse<sw::Invariant, sw::Invariant>;
};

// begin: layer
template <class Parameters>
struct ScaleBy : sw::KeepsLayout {
  static constexpr sw::Saves saves = sw::Saves::input;

  template <sw::Layout In>
  using parameters = std::tuple<typename Parameters::template of<In>>;

  constexpr std::array<sw::ParameterSpec, 1> parameter_specs(const sw::Shape& in) const {
    return {sw::ParameterSpec{"factor", sw::Shape{in.back()}, sw::init::ones}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    const auto factor = frame.template parameter<0>();
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor[i % x.columns()];
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, X x, DY dy, DX dx) const {
    using T = typename Frame::dtype;
    const auto factor = frame.template parameter<0>();
    const auto gradient = frame.template gradient<0>();
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

struct Scale : ScaleBy<ScaleParameters> {};
struct WrongScale : ScaleBy<GradientsOfOwnRows> {};
