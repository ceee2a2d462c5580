#pragma once
// Convolution: one template over the number of axes of space and the split of its weight.

#include <cstddef>
#include <string>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/convolution_form.hpp"
#include "shardwise/layers/convolution_split.hpp"
#include "shardwise/layers/detail/convolution_base.hpp"
#include "shardwise/layers/detail/image_windows.hpp"

namespace shardwise {

namespace detail {

/// See `Conv2d`.
template <ConvolutionSplit S, std::size_t In, std::size_t Out, auto Form>
class Convolution : public ConvolutionBase<Convolution<S, In, Out, Form>, S, In, Out, Form> {
  using Base = ConvolutionBase<Convolution, S, In, Out, Form>;

 public:
  using Base::Base;

  ///@{
  /// As `SplitChoices` says. One that is split by group has no other choice.
  using splits = convolution_splits_t<S, Form>;
  template <class Other>
  using split_by = Convolution<Other, In, Out, Form>;
  ///@}

  /// The same layer with its sizes in the object.
  constexpr auto as_dynamic() const {
    return Convolution<S, dynamic, dynamic, Form>(this->in_channels(), this->out_channels())
        .initialized_by(this->weight_rule_, this->bias_rule_);
  }

  ///@{
  /// As `Layer` says.
  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    frame.state().forward(call_on<Form.windows>(x, y, frame.rows_begin()), x.data(),
                          Convolution::weight_of(frame), Convolution::values_of(frame)[1],
                          this->activation_, y.data());
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    const ConvolutionCall call = call_on<Form.windows>(x, dy, frame.rows_begin());
    const auto [weight_gradient, bias_gradient] = Convolution::gradients_of(frame);
    typename Frame::dtype* input_gradient = nullptr;
    if constexpr (Frame::input_gradient) input_gradient = dx.data();
    frame.state().backward(call, x.data(), dy.data(), Convolution::weight_of(frame), frame.write(),
                           weight_gradient, bias_gradient, input_gradient);
  }
  ///@}
};

}  // namespace detail

///@{
/// y[n, o, p] = b[o] + Σ x[n, i, p stride - before + k dilation] w[o, i, k], over the input
/// channels i of o's group and the taps k; elements outside the image are zero. With S = [H, W],
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
/// for Sharded<batch> the gradients owe an all-reduce. A grouped convolution is split by whole
/// groups, along space, or not at all.
///
/// With split::height (depth, width) all ranks have the whole weight, whose gradients owe an
/// all-reduce, and Haloed<height, its window> -> Sharded<height>: a rank computes its block of the
/// output's rows from all input rows that they read. A kernel of one tap reads only the rank's own
/// rows: Sharded<height> -> Sharded<height>. Padding is only at the ends of the image, not of a
/// rank's rows.
///
/// On a mesh whose ranks along `context` have different rows of images, a convolution that is not
/// split by height takes along `context` what split::height takes along `tensor`. With split::width
/// a rank then has a tile of each image.
///
/// In and Out are channels, as `Sized` says. Shards follow the units and grain of the input's
/// channels. The output's channels have the kernel's grain; split by group, each of their units has
/// as many groups as a unit of the input.
/// sends    nothing
/// throws   shape_error if x has other axes or channels, if the kernel is larger than the padded
///          image, or if a shard of x could end within a group
/// source   torch.nn.Conv2d and ONNX operator Conv for shapes; groups: Krizhevsky et al. 2012
///
/// On [batch, channel, width], [batch, channel, height, width] and [batch, channel, depth, height,
/// width]: `Conv2d<split::output, 3, 32, kernel(3, {.padding = 1})>`.
template <detail::ConvolutionSplit S, std::size_t In, std::size_t Out, Kernel K>
using Conv1d = detail::Convolution<S, In, Out, detail::form_of<1, K>()>;
template <detail::ConvolutionSplit S, std::size_t In, std::size_t Out, Kernel K>
using Conv2d = detail::Convolution<S, In, Out, detail::form_of<2, K>()>;
template <detail::ConvolutionSplit S, std::size_t In, std::size_t Out, Kernel K>
using Conv3d = detail::Convolution<S, In, Out, detail::form_of<3, K>()>;
///@}

/// "Conv2d<output, 3, 32, 3x3, padding 1x1>".
template <detail::ConvolutionSplit S, std::size_t In, std::size_t Out, auto Form>
struct NameOf<detail::Convolution<S, In, Out, Form>> {
  static std::string name() { return detail::convolution_name<S, In, Out, Form>("Conv"); }
};

}  // namespace shardwise
