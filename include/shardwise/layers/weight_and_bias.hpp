#pragma once
// What layers share whose parameters are a weight and a bias, the weight alone, or none.

#include <array>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// A base of layers with `Count` parameters, at most two: a weight and then a bias.
template <std::size_t Count>
class WeightAndBias {
 public:
  static constexpr bool has_weight = Count > 0;  ///< whether there is a weight
  static constexpr bool has_bias = Count > 1;    ///< whether there is a bias

 protected:
  /// How a layer uses them, which uses its weight as Weight and its bias as Bias.
  template <class Weight, class Bias>
  using uses = std::conditional_t<has_bias, std::tuple<Weight, Bias>,
                                  std::conditional_t<has_weight, std::tuple<Weight>, std::tuple<>>>;

  /// The specs of those that it has.
  [[gnu::noinline]] static constexpr std::array<ParameterSpec, Count> specs(
      [[maybe_unused]] const ParameterSpec& weight, [[maybe_unused]] const ParameterSpec& bias) {
    if constexpr (has_bias) {
      return {weight, bias};
    } else if constexpr (has_weight) {
      return {weight};
    } else {
      return {};
    }
  }

  /// The rank's part of the weight and of the bias: `const auto
  /// [weight, bias] = values_of(frame)`. Null for one that the layer does not have.
  template <class Frame>
  static auto values_of(Frame& frame) {
    std::array<const typename Frame::dtype*, 2> values{};
    if constexpr (has_weight) values[0] = frame.template parameter_data<0>();
    if constexpr (has_bias) values[1] = frame.template parameter_data<1>();
    return values;
  }
  /// Where the gradients of the two go, null as above.
  template <class Frame>
  static auto gradients_of(Frame& frame) {
    std::array<typename Frame::dtype*, 2> gradients{};
    if constexpr (has_weight) gradients[0] = frame.template gradient_data<0>();
    if constexpr (has_bias) gradients[1] = frame.template gradient_data<1>();
    return gradients;
  }
};

/// A base of the layer L, a product with a weight and perhaps a bias, laid out as Layouts says:
/// where their initial values come from, and the activation that the product applies to its result.
template <class L, class Layouts, bool Bias>
class WeightedProduct : public WeightAndBias<Bias ? 2 : 1> {
 public:
  /// As `Layer` says.
  template <Layout In>
  using parameters = typename WeightedProduct::template uses<typename Layouts::template weight<In>,
                                                             typename Layouts::template bias<In>>;

  /// The same layer with other initial values:
  /// `Linear<...>{}.initialized_by(init::xavier_uniform)`.
  constexpr L initialized_by(init::Rule of_weight, init::Rule of_bias = init::zeros) const {
    L other = static_cast<const L&>(*this);
    other.weight_rule_ = of_weight;
    other.bias_rule_ = of_bias;
    return other;
  }

  /// As `Layer` says. A summand of the result is not given to a function.
  template <Layout In>
  requires(!std::same_as<typename Layouts::template output_layout<In>, Partial>) constexpr L
      with_activation(Activation activation) const {
    L other = static_cast<const L&>(*this);
    other.activation_ = activation;
    return other;
  }

 protected:
  /// The weight as kernels take it.
  template <class Frame>
  static Weight<typename Frame::dtype> weight_of(Frame& frame) {
    return frame.weight(frame.template parameter_data<0>());
  }

  init::Rule weight_rule_ = init::torch_linear;  ///< where the weight's values come from
  init::Rule bias_rule_ = init::torch_linear;    ///< and the bias's
  Activation activation_ = Activation::none;     ///< applied to the result
};

}  // namespace shardwise
