#pragma once
// The linear layer: one template over the split of its weight.

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/detail/size.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/split.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

namespace detail {

[[noreturn]] inline void throw_wrong_features(const Shape& x, std::size_t in, std::size_t out) {
  throw shape_error({"the input is a tensor ", x, ", but the weight has ", in, " input features (",
                     out, " output): the innermost axis must be feature with that extent"});
}

constexpr ParameterSpec linear_weight(const Dim& inputs, const Fans& fans, init::Rule rule) {
  return {
      "weight", {{Axis::output, fans.out}, {Axis::input, inputs.units, inputs.grain}}, rule, fans};
}

constexpr ParameterSpec linear_bias(const Fans& fans, init::Rule rule) {
  return {"bias", {{Axis::output, fans.out}}, rule, fans};
}

inline std::string linear_name(const char* kind, std::size_t in, std::size_t out, bool bias) {
  return sentence({kind, "<", size_name(in), ", ", size_name(out), bias ? ">" : ", no bias>"});
}

/// What a linear layer does to the blocks that a rank holds, whatever their sizes: compiled once
/// for all layers of a split.
template <class S, bool Bias>
class LinearProduct : public ProductLayouts<S, Axis::feature> {
  using Layouts = ProductLayouts<S, Axis::feature>;

 public:
  static constexpr Saves saves = Saves::input;     ///< as `Layer` says
  static constexpr bool backward_in_parts = true;  ///< as `Layer` says

  ///@{
  /// As `Layer` says.
  template <Layout X>
  using parameters = std::conditional_t<
      Bias, std::tuple<typename Layouts::template weight<X>, typename Layouts::template bias<X>>,
      std::tuple<typename Layouts::template weight<X>>>;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    frame.state().forward(x.rows(), x.data(), weight_of(frame), bias_of(frame), activation_,
                          y.data());
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    backward_parameters(frame, x, dy);
    if constexpr (Frame::input_gradient) backward_input(frame, dy, dx);
  }

  template <class Frame, class DY, class DX>
  void backward_input(Frame& frame, const DY& dy, const DX& dx) const {
    frame.state().backward_input(dy.rows(), dy.data(), weight_of(frame), dx.data());
  }

  template <class Frame, class X, class DY>
  void backward_parameters(Frame& frame, const X& x, const DY& dy) const {
    typename Frame::dtype* bias_gradient = nullptr;
    if constexpr (Bias) bias_gradient = frame.template gradient_data<1>();
    frame.state().backward_weight(x.rows(), x.data(), dy.data(), frame.write(),
                                  frame.template gradient_data<0>(), bias_gradient);
  }
  ///@}

 private:
  template <class Frame>
  static auto weight_of(Frame& frame) {
    return Weight<typename Frame::dtype>{frame.template parameter_data<0>(), frame.version()};
  }

  template <class Frame>
  static const typename Frame::dtype* bias_of(Frame& frame) {
    if constexpr (Bias) {
      return frame.template parameter_data<1>();
    } else {
      return nullptr;
    }
  }

 protected:
  /// Applied to what the product gives.
  Activation activation_ = Activation::none;
};

}  // namespace detail

/// y = x Wᵀ + b on the innermost axis, which must be `feature`.
///
///                split::output             split::input              split::none
/// x per rank     [..., In]                 [..., In/P]               [..., In]
/// W per rank     [Out/P, In]               [Out, In/P]               [Out, In]
/// b per rank     [Out/P]                   [Out], added on rank 0    [Out]
/// y per rank     [..., Out/P]              [..., Out], a summand     [..., Out]
/// layout         Replicated ->             Sharded<feature> ->       L -> L for Invariant,
///                Sharded<feature>          Partial                   Sharded<batch>, <sequence>
/// gradient owes  nothing                   nothing                   all-reduce unless Invariant
///
/// In and Out are sizes over all ranks, or `dynamic` and then given at construction, in this order.
/// Shards follow the units and grain of the input's features; Out/P is cut by `block_of`.
/// sends    nothing
/// throws   shape_error if x has another innermost axis or extent than In features
/// source   Shoeybi et al. 2019, section 3
template <class S, std::size_t In, std::size_t Out, bool Bias = true>
class Linear : public detail::LinearProduct<S, Bias> {
 public:
  static constexpr std::size_t in_features = In;    ///< over all ranks, or `dynamic`
  static constexpr std::size_t out_features = Out;  ///< over all ranks, or `dynamic`
  /// How many sizes its constructor is to be given, in their order: those that are `dynamic`.
  static constexpr std::size_t sizes_to_give = detail::dynamic_among<In, Out>;

  /// All sizes are in the type.
  constexpr Linear() requires(In != dynamic && Out != dynamic) = default;

  /// One size is `dynamic`.
  constexpr explicit Linear(std::size_t size) requires((In == dynamic) != (Out == dynamic)) {
    if constexpr (In == dynamic) in_.given = size;
    if constexpr (Out == dynamic) out_.given = size;
  }

  /// Both sizes are `dynamic`.
  constexpr Linear(std::size_t in, std::size_t out) requires(In == dynamic && Out == dynamic) {
    in_.given = in;
    out_.given = out;
  }

  /// The error for sizes that the type has already, or that are too few.
  template <std::integral... Sizes>
  requires(sizeof...(Sizes) <= 2 &&
           sizeof...(Sizes) != sizes_to_give) constexpr explicit Linear(Sizes...) {
    detail::sizes_must_be_dynamic<Linear, sizeof...(Sizes), sizes_to_give>();
  }

  /// The same layer with other initial values:
  /// `Linear<...>{}.initialized_by(init::xavier_uniform)`.
  constexpr Linear initialized_by(init::Rule of_weight, init::Rule of_bias = init::zeros) const {
    Linear other = *this;
    other.weight_rule_ = of_weight;
    other.bias_rule_ = of_bias;
    return other;
  }

  ///@{
  /// Features over all ranks, once they are known.
  constexpr std::size_t in() const { return in_.value(); }
  constexpr std::size_t out() const { return out_.value(); }
  ///@}

  /// The same layer with its sizes in the object.
  constexpr auto as_dynamic() const {
    return Linear<S, dynamic, dynamic, Bias>(in(), out()).initialized_by(weight_rule_, bias_rule_);
  }

  ///@{
  /// As `Layer` says.
  template <Layout X>
  constexpr Linear with_activation(Activation activation) const
      requires(!std::same_as<typename Linear::template output_layout<X>, Partial>) {
    Linear other = *this;
    other.activation_ = activation;
    return other;
  }

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() > 0) check_input(x);
    return x.with_back({Axis::feature, out()});
  }

  constexpr auto parameter_specs(const Shape& x) const {
    const Dim inputs = x.rank() > 0 ? x.back() : Dim{Axis::feature, in()};
    const Fans fans{in(), out()};
    const ParameterSpec spec = detail::linear_weight(inputs, fans, weight_rule_);
    if constexpr (Bias) {
      return std::array{spec, detail::linear_bias(fans, bias_rule_)};
    } else {
      return std::array{spec};
    }
  }

  /// The products of the rank's part of the weight.
  template <class Frame>
  static auto make_state(Frame& frame) {
    using T = typename Frame::dtype;
    using B = typename Frame::backend_type;
    static_assert(
        Backend<B, T>,
        "the backend does not compute in this dtype: docs/backends.md says which one runs "
        "where. Name another dtype or another backend in the model's Context.");
    const Shape weight = frame.template parameter_shape<0>();
    return typename B::template Linear<T>(frame.backend(), weight[1].extent(), weight[0].extent());
  }
  ///@}

 private:
  constexpr void check_input(const Shape& x) const {
    const Dim& last = x.back();
    if (last.axis != Axis::feature || (last.known() && last.extent() != in())) {
      detail::throw_wrong_features(x, in(), out());
    }
  }

  [[no_unique_address]] detail::Size<In> in_{};
  [[no_unique_address]] detail::Size<Out> out_{};
  init::Rule weight_rule_ = init::torch_linear;
  init::Rule bias_rule_ = init::torch_linear;
};

namespace detail {

template <class S, std::size_t In, std::size_t Out, bool Bias>
inline constexpr bool runs_as_dynamic<Linear<S, In, Out, Bias>> = true;

}  // namespace detail

/// Each rank has all inputs and makes its block of the outputs.
template <std::size_t In, std::size_t Out, bool Bias = true>
using ColumnParallelLinear = Linear<split::output, In, Out, Bias>;

/// Each rank has its block of the inputs and makes a summand of all outputs.
template <std::size_t In, std::size_t Out, bool Bias = true>
using RowParallelLinear = Linear<split::input, In, Out, Bias>;

/// "RowParallelLinear<512, 10>".
template <class S, std::size_t In, std::size_t Out, bool Bias>
struct NameOf<Linear<S, In, Out, Bias>> {
  static std::string name() {
    constexpr const char* kind = std::same_as<S, split::output>  ? "ColumnParallelLinear"
                                 : std::same_as<S, split::input> ? "RowParallelLinear"
                                                                 : "Linear";
    return detail::linear_name(kind, In, Out, Bias);
  }
};

}  // namespace shardwise
