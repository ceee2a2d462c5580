#pragma once
// The channels of a convolution or transposed convolution, and how they are split.

#include <concepts>
#include <cstddef>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/convolution_split.hpp"
#include "shardwise/layers/detail/convolution_checks.hpp"
#include "shardwise/layers/sized.hpp"

namespace shardwise::detail {

/// Channels over all ranks, in the type or in the object, as `Sized` says.
template <class S, std::size_t In, std::size_t Out, auto Form>
class SplitChannels : public Sized<In, Out> {
 protected:
  using Sized<In, Out>::in;  // an input without features is not completed: images have channels
  using Sized<In, Out>::out;
  static constexpr bool splits_groups = std::same_as<S, split::group>;

  static_assert(channels_must_divide<In, Out, Form.groups, Form.grain>());
  static_assert(groups_must_stay_whole<S, splits_groups, Form.groups, Form.grain>());

 public:
  using Sized<In, Out>::Sized;

  static constexpr std::size_t axes = Form.windows.size();  ///< of space
  static constexpr auto form = Form;                        ///< its ConvolutionForm

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

 protected:
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

  /// The backend's products with the rank's part of a weight, whose outermost axis is that of
  /// `outer` channels over all ranks, which OuterSplit cuts. The part has some whole groups
  /// of them, or some channels of a single group.
  template <class OuterSplit, class Frame>
  auto products(Frame& frame, std::size_t outer) const {
    using T = typename Frame::dtype;
    using B = typename Frame::backend_type;
    static_assert(ConvolutionBackend<B, T>,
                  "the backend has no convolutions in this dtype; see its table");
    const Shape held = frame.template parameter_shape<0>();
    const std::size_t here = held[0].extent(), inner = held[1].extent();
    const std::size_t of_group = outer / Form.groups;
    const bool cuts_a_group = std::same_as<S, OuterSplit>;
    return typename B::template Convolution<T>(
        frame.backend(), cuts_a_group ? ConvolutionChannels{1, inner, here}
                                      : ConvolutionChannels{here / of_group, inner, of_group});
  }
};

}  // namespace shardwise::detail
