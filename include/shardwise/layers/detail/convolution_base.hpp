#pragma once
// What a convolution and a transposed one share: channels, shapes, and the split of both.

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/convolution_split.hpp"
#include "shardwise/layers/detail/convolution_checks.hpp"
#include "shardwise/layers/detail/image_windows.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/weight_and_bias.hpp"

namespace shardwise::detail {

/// A base of the layer L. Channels are those over all ranks, in the type or in the object, as
/// `Sized` says. The weight is [outer, inner / groups, K...]: `outer` channels are those of the
/// output, `inner` ones those of the input, and the other way round for a transposed convolution.
template <class L, class S, std::size_t In, std::size_t Out, auto Form>
class ConvolutionBase : public ConvolutionLayouts<S, Form>,
                        public Sized<In, Out>,
                        public WeightedProduct<L, ConvolutionLayouts<S, Form>, Form.bias> {
 protected:
  using Sized<In, Out>::in;  // an input without features is not completed: images have channels
  using Sized<In, Out>::out;
  static constexpr bool splits_groups = std::same_as<S, split::group>;
  static constexpr bool is_transposed = Form.windows[0].is_transposed;

  static_assert(channels_must_divide<In, Out, Form.groups, Form.grain>());
  static_assert(groups_must_stay_whole<S, splits_groups, Form.groups, Form.grain>());

 public:
  using Sized<In, Out>::Sized;

  static constexpr std::size_t axes = Form.windows.size();  ///< of space
  static constexpr auto form = Form;                        ///< its ConvolutionForm

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::input;
  using along_other_axes = LinearInWindows<Form.windows>;
  ///@}

  ///@{
  /// The channels of a group, which input units must be multiples of, and the output's grain, if
  /// known.
  static constexpr std::size_t in_grain = splits_groups && In != dynamic ? In / Form.groups : 1;
  static constexpr std::size_t out_grain = splits_groups ? dynamic : Form.grain;
  ///@}

  ///@{
  /// Channels over all ranks, if they are known.
  constexpr std::size_t in_channels() const { return in(); }
  constexpr std::size_t out_channels() const { return out(); }
  ///@}

  ///@{
  /// As `Layer` says.
  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    const ConvolutionChecks checks = check_images(x);
    Shape y{x[0], output_channels(Axis::channel, x[1])};
    for (std::size_t i = 0; i < axes; ++i) y.append(checks.outputs(x, i, Form.windows[i]));
    return y;
  }

  constexpr auto parameter_specs(const Shape& x) const {
    if (x.rank() > 0) check_images(x);
    const Dim channels = x.rank() > 0 ? x[1] : Dim{Axis::channel, in_channels()};
    const Dim outputs = output_channels(Axis::output, channels);
    const Dim inputs{Axis::input, channels.units, channels.grain};
    // nvcc 13.0 crashes if these choices are inside the braces of `shape`.
    const Dim outer = is_transposed ? inputs : outputs;
    Dim inner = is_transposed ? outputs : inputs;
    const std::size_t of_group = (is_transposed ? out_channels() : in_channels()) / Form.groups;
    if (Form.groups > 1) inner = {inner.axis, of_group};
    Shape shape{outer, inner};
    for (std::size_t i = 0; i < axes; ++i)
      shape.append({space_axis(i, axes), Form.windows[i].kernel});
    const Fans fans{of_group * Form.taps(), outer_channels() * Form.taps()};  // as PyTorch counts
    return ConvolutionBase::specs({"weight", shape, this->weight_rule_, fans},
                                  {"bias", Shape{outputs}, this->bias_rule_, fans});
  }

  /// The backend's products with the rank's part of the weight, those of a transposed convolution
  /// being those of the convolution from y to x. The part has some whole groups of outer
  /// channels, or some channels of a single group.
  template <class Frame>
  auto make_state(Frame& frame) const {
    using T = typename Frame::dtype;
    using B = typename Frame::backend_type;
    static_assert(ConvolutionBackend<B, T>,
                  "the backend has no convolutions in this dtype; see its table");
    const Shape held = frame.template parameter_shape<0>();
    const std::size_t here = held[0].extent(), inner = held[1].extent();
    const std::size_t of_group = outer_channels() / Form.groups;
    const bool cuts_a_group =
        std::same_as<S, std::conditional_t<is_transposed, split::input, split::output>>;
    return typename B::template Convolution<T>(
        frame.backend(), cuts_a_group ? ConvolutionChannels{1, inner, here}
                                      : ConvolutionChannels{here / of_group, inner, of_group});
  }
  ///@}

 private:
  constexpr std::size_t outer_channels() const { return is_transposed ? in() : out(); }

  /// Throws shape_error unless x is images with these channels, in units that no group crosses.
  constexpr ConvolutionChecks check_images(const Shape& x) const {
    const ConvolutionChecks checks{axes, in_channels(), out_channels(), Form.groups, Form.grain};
    checks.check_axes(x);
    checks.check_channels();
    if constexpr (splits_groups) checks.check_units(x);
    return checks;
  }

  /// The output channels, as an axis with this name.
  constexpr Dim output_channels(Axis axis, const Dim& inputs) const {
    if constexpr (splits_groups) {
      const std::size_t groups_in_unit = inputs.grain * Form.groups / in_channels();
      return {axis, inputs.units, groups_in_unit * (out_channels() / Form.groups)};
    } else {
      return {axis, out_channels() / Form.grain, Form.grain};
    }
  }
};

}  // namespace shardwise::detail
