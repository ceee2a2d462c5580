#pragma once
// Convolution: one template over the number of axes of space and the split of its weight.

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/convolution_form.hpp"
#include "shardwise/layers/convolution_split.hpp"
#include "shardwise/layers/detail/convolution_checks.hpp"
#include "shardwise/layers/detail/image_windows.hpp"
#include "shardwise/layers/detail/size.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// y[n, o, p] = b[o] + Σ x[n, i, p stride - before + k dilation] w[o, i, k], over the input
/// channels i of o's group and the taps k; what lies outside the image is zero. With S = [H, W],
/// [D, H, W] or [W] for two, three or one axis of space, and K the taps along each:
///
///                split::output           split::input             split::group
/// x per rank     [B, In, S...]           [B, In/P, S...]          [B, In/P, S...]
/// w per rank     [Out/P, In, K...]       [Out, In/P, K...]        [Out/P, In/groups, K...]
/// b per rank     [Out/P]                 [Out], added on rank 0   [Out/P]
/// y per rank     [B, Out/P, S'...]       [B, Out, S'...], a       [B, Out/P, S'...]
///                                        summand
/// layout         Replicated ->           Sharded<channel> ->      Sharded<channel> ->
///                Sharded<channel>        Partial                  Sharded<channel>
/// owes           nothing                 nothing                  nothing
///
/// With split::none all ranks have the whole weight, and L -> L for Invariant and Sharded<batch>;
/// the gradients of the latter owe an all-reduce. A grouped convolution is split by whole groups or
/// not at all, or along space.
///
/// With split::height (depth, width) all ranks have the whole weight, whose gradients owe an
/// all-reduce, and Haloed<height, its window> -> Sharded<height>: a rank makes its block of the
/// output's rows from the input's rows that they read; for a kernel of one tap these are its own,
/// Sharded<height> -> Sharded<height>. Zeros stand beyond the image, not beyond a rank's rows.
///
/// In and Out are channels over all ranks, or `dynamic` and then given at construction, in this
/// order; Form is made by `Conv1d`, `Conv2d` and `Conv3d`. Shards follow the units and grain of the
/// input's channels. The output's have the form's grain; split by group, they are in units of as
/// many groups as the input's.
/// sends    nothing
/// throws   shape_error if x has other axes or channels, if the kernel is larger than the padded
///          image, or if shards of x could end within a group
/// source   torch.nn.Conv2d and ONNX operator Conv for shapes; groups: Krizhevsky et al. 2012
template <ConvolutionSplit S, std::size_t In, std::size_t Out, auto Form>
class Convolution : public detail::ConvolutionLayouts<S, Form> {
  using Layouts = detail::ConvolutionLayouts<S, Form>;
  static constexpr bool splits_groups = std::same_as<S, split::group>;

  static_assert(detail::channels_must_divide<In, Out, Form.groups, Form.grain>());
  static_assert(detail::groups_must_stay_whole<S, splits_groups, Form.groups, Form.grain>());

 public:
  static constexpr Saves saves = Saves::input;              ///< as `Layer` says
  static constexpr std::size_t axes = Form.windows.size();  ///< of space
  static constexpr auto form = Form;                        ///< its ConvolutionForm

  ///@{
  /// Channels, by the names that neighbours ask for.
  static constexpr std::size_t in_features = In;
  static constexpr std::size_t out_features = Out;
  /// How many sizes its constructor is to be given, in their order: those that are `dynamic`.
  static constexpr std::size_t sizes_to_give = detail::dynamic_among<In, Out>;
  ///@}

  ///@{
  /// Channels of which units must be multiples, and those that output units have, as far as known.
  static constexpr std::size_t in_grain = splits_groups && In != dynamic ? In / Form.groups : 1;
  static constexpr std::size_t out_grain = splits_groups ? dynamic : Form.grain;
  ///@}

  /// All sizes are in the type.
  constexpr Convolution() requires(In != dynamic && Out != dynamic) = default;

  /// One size is `dynamic`.
  constexpr explicit Convolution(std::size_t size) requires((In == dynamic) != (Out == dynamic)) {
    if constexpr (In == dynamic) in_.given = size;
    if constexpr (Out == dynamic) out_.given = size;
  }

  /// Both sizes are `dynamic`.
  constexpr Convolution(std::size_t in, std::size_t out) requires(In == dynamic && Out == dynamic) {
    in_.given = in;
    out_.given = out;
  }

  /// The error for sizes that the type has already, or that are too few.
  template <std::integral... Sizes>
  requires(sizeof...(Sizes) <= 2 &&
           sizeof...(Sizes) != sizes_to_give) constexpr explicit Convolution(Sizes...) {
    detail::sizes_must_be_dynamic<Convolution, sizeof...(Sizes), sizes_to_give>();
  }

  /// The same layer with other initial values.
  constexpr Convolution initialized_by(init::Rule of_weight,
                                       init::Rule of_bias = init::zeros) const {
    Convolution other = *this;
    other.weight_rule_ = of_weight;
    other.bias_rule_ = of_bias;
    return other;
  }

  ///@{
  /// Channels over all ranks, once they are known.
  constexpr std::size_t in_channels() const { return in_.value(); }
  constexpr std::size_t out_channels() const { return out_.value(); }
  ///@}

  /// The same layer with its sizes in the object.
  constexpr auto as_dynamic() const {
    return Convolution<S, dynamic, dynamic, Form>(in_channels(), out_channels())
        .initialized_by(weight_rule_, bias_rule_);
  }

  ///@{
  /// As `Layer` says.
  template <Layout X>
  constexpr Convolution with_activation(Activation activation) const
      requires(!std::same_as<typename Layouts::template output_layout<X>, Partial>) {
    Convolution other = *this;
    other.activation_ = activation;
    return other;
  }

  template <Layout X>
  using parameters = std::conditional_t<
      Form.bias,
      std::tuple<typename Layouts::template weight<X>, typename Layouts::template bias<X>>,
      std::tuple<typename Layouts::template weight<X>>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    check_input(x);
    Shape y{x[0], output_channels(Axis::channel, x[1])};
    for (std::size_t i = 0; i < axes; ++i) {
      const Dim& in = x[2 + i];
      y.append({in.axis, in.known() ? Form.windows[i].outputs(in.extent()) : dynamic});
    }
    return y;
  }

  constexpr auto parameter_specs(const Shape& x) const {
    if (x.rank() > 0) check_input(x);
    const Dim channels = x.rank() > 0 ? x[1] : Dim{Axis::channel, in_channels()};
    const Dim outputs = output_channels(Axis::output, channels);
    // Inside the braces of `shape` this choice crashes nvcc 13.0.
    const Dim inputs = Form.groups == 1 ? Dim{Axis::input, channels.units, channels.grain}
                                        : Dim{Axis::input, in_channels() / Form.groups};
    Shape shape{outputs, inputs};
    for (std::size_t i = 0; i < axes; ++i)
      shape.append({detail::space_axis(i, axes), Form.windows[i].kernel});
    const Fans fans{in_channels() / Form.groups * Form.taps(), out_channels() * Form.taps()};
    const ParameterSpec spec{"weight", shape, weight_rule_, fans};
    if constexpr (Form.bias) {
      return std::array{spec, ParameterSpec{"bias", Shape{outputs}, bias_rule_, fans}};
    } else {
      return std::array{spec};
    }
  }

  /// The products of the rank's part of the weight.
  template <class Frame>
  auto make_state(Frame& frame) const {
    using T = typename Frame::dtype;
    using B = typename Frame::backend_type;
    static_assert(ConvolutionBackend<B, T>,
                  "the backend has no convolutions in this dtype; see its table");
    const Shape held = frame.template parameter_shape<0>();
    return typename B::template Convolution<T>(frame.backend(),
                                               channels_here(held[0].extent(), held[1].extent()));
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    frame.state().forward(call_on(x, y), x.data(), weight_of(frame), bias_of(frame), activation_,
                          y.data());
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    const ConvolutionCall call = call_on(x, dy);
    typename Frame::dtype* bias_gradient = nullptr;
    if constexpr (Form.bias) bias_gradient = frame.template gradient_data<1>();
    typename Frame::dtype* input_gradient = nullptr;
    if constexpr (Frame::input_gradient) input_gradient = dx.data();
    frame.state().backward(call, x.data(), dy.data(), weight_of(frame), frame.write(),
                           frame.template gradient_data<0>(), bias_gradient, input_gradient);
  }
  ///@}

 private:
  constexpr void check_input(const Shape& x) const {
    const detail::ConvolutionChecks checks{axes, in_channels(), out_channels(), Form.groups,
                                           Form.grain};
    checks.check_axes(x);
    checks.check_channels();
    if constexpr (splits_groups) checks.check_units(x);
    for (std::size_t i = 0; i < axes; ++i) checks.check_window(x, i, Form.windows[i]);
  }

  /// The output channels as an axis of that name.
  constexpr Dim output_channels(Axis axis, const Dim& in) const {
    if constexpr (splits_groups) {
      const std::size_t groups_in_unit = in.grain * Form.groups / in_channels();
      return {axis, in.units, groups_in_unit * (out_channels() / Form.groups)};
    } else {
      return {axis, out_channels() / Form.grain, Form.grain};
    }
  }

  /// Of a weight of `outputs` output channels and `inputs` input channels to each, which has the
  /// rank's part of the groups, or of the outputs of the only one.
  constexpr ConvolutionChannels channels_here(std::size_t outputs, std::size_t inputs) const {
    if constexpr (std::same_as<S, split::output>) {
      return {1, inputs, outputs};
    } else {
      const std::size_t of_group = out_channels() / Form.groups;
      return {outputs / of_group, inputs, of_group};
    }
  }

  template <class X, class Y>
  static ConvolutionCall call_on(const X& x, const Y& y) {
    return {x.local()[0].extent(), detail::space_of<Form.windows>(x, y)};
  }

  template <class Frame>
  static auto weight_of(Frame& frame) {
    return Weight<typename Frame::dtype>{frame.template parameter_data<0>(), frame.version()};
  }

  template <class Frame>
  static const typename Frame::dtype* bias_of(Frame& frame) {
    if constexpr (Form.bias) {
      return frame.template parameter_data<1>();
    } else {
      return nullptr;
    }
  }

  [[no_unique_address]] detail::Size<In> in_{};
  [[no_unique_address]] detail::Size<Out> out_{};
  init::Rule weight_rule_ = init::torch_linear;
  init::Rule bias_rule_ = init::torch_linear;
  Activation activation_ = Activation::none;  // applied to what it gives
};

namespace detail {

template <ConvolutionSplit S, std::size_t In, std::size_t Out, auto Form>
inline constexpr bool runs_as_dynamic<Convolution<S, In, Out, Form>> = true;

}  // namespace detail

/// On [batch, channel, width].
template <ConvolutionSplit S, std::size_t In, std::size_t Out, Kernel K>
using Conv1d = Convolution<S, In, Out, detail::form_of<1, K>()>;

/// On [batch, channel, height, width]: `Conv2d<split::output, 3, 32, kernel(3, {.padding = 1})>`.
template <ConvolutionSplit S, std::size_t In, std::size_t Out, Kernel K>
using Conv2d = Convolution<S, In, Out, detail::form_of<2, K>()>;

/// On [batch, channel, depth, height, width].
template <ConvolutionSplit S, std::size_t In, std::size_t Out, Kernel K>
using Conv3d = Convolution<S, In, Out, detail::form_of<3, K>()>;

/// "Conv2d<output, 3, 32, 3x3, padding 1x1>".
template <ConvolutionSplit S, std::size_t In, std::size_t Out, auto Form>
struct NameOf<Convolution<S, In, Out, Form>> {
  static std::string name() {
    return "Conv" + std::to_string(Form.windows.size()) + "d<" + detail::split_name<S>() + ", " +
           detail::size_name(In) + ", " + detail::size_name(Out) + ", " + detail::form_name(Form) +
           '>';
  }
};

}  // namespace shardwise
