#pragma once
// Transposed convolution: the adjoint of a convolution, which makes images larger.

#include <cstddef>
#include <string>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/convolution_form.hpp"
#include "shardwise/layers/convolution_split.hpp"
#include "shardwise/layers/detail/channels.hpp"
#include "shardwise/layers/detail/convolution_base.hpp"
#include "shardwise/layers/detail/image_windows.hpp"

namespace shardwise {

namespace detail {

template <auto Form>
consteval bool output_padding_must_be_narrow() {
  bool narrow = true;
  for (std::size_t i = 0; i < Form.windows.size(); ++i)
    narrow = narrow && Form.windows[i].added < Form.windows[i].stride;
  return narrow;
}

template <bool IsNarrow>
consteval bool output_padding_must_fit() {
  static_assert(IsNarrow,
                "The output padding of a transposed convolution tells outputs apart that a stride "
                "makes alike: it must be at least 0 and less than the stride, along every axis.");
  return true;
}

/// y = F(y + b) on the elements of each channel; `bias` may be null.
template <class F, class T>
struct BiasedChannel {
  const T* bias;
  T* y;

  constexpr auto operator()(std::size_t c) const {
    using A = accumulate_t<T>;
    return [to = y, shift = bias == nullptr ? A(0) : static_cast<A>(bias[c])](std::size_t i) {
      to[i] = static_cast<T>(F::value(static_cast<A>(to[i]) + shift));
    };
  }
};

/// See `ConvTranspose2d`.
template <ConvolutionSplit S, std::size_t In, std::size_t Out, auto Form>
class ConvolutionTranspose
    : public ConvolutionBase<ConvolutionTranspose<S, In, Out, Form>, S, In, Out, Form> {
  using Base = ConvolutionBase<ConvolutionTranspose, S, In, Out, Form>;
  static_assert(output_padding_must_fit<output_padding_must_be_narrow<Form>()>());

 public:
  using Base::Base;

  /// The same layer with its sizes in the object.
  constexpr auto as_dynamic() const {
    return ConvolutionTranspose<S, dynamic, dynamic, Form>(this->in_channels(),
                                                           this->out_channels())
        .initialized_by(this->weight_rule_, this->bias_rule_);
  }

  ///@{
  /// As `Layer` says.
  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    frame.state().backward(call_on<Form.windows>(y, x, frame.rows_begin().reversed()), nullptr,
                           x.data(), ConvolutionTranspose::weight_of(frame), Write::replace,
                           nullptr, nullptr, y.data());
    const T* const biases = ConvolutionTranspose::values_of(frame)[1];
    if (biases == nullptr && this->activation_ == Activation::none) return;
    visit(this->activation_, [&](auto f) {
      for_each_in_channels(frame.backend(), ChannelsOf(y.local(), 1),
                           BiasedChannel<decltype(f), T>{biases, y.data()});
    });
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    const ConvolutionCall call = call_on<Form.windows>(
        dy, x, frame.rows_begin().reversed());  // of the convolution from y to x
    const auto weights = ConvolutionTranspose::weight_of(frame);
    const auto [weight_gradient, bias_gradient] = ConvolutionTranspose::gradients_of(frame);
    frame.state().backward(call, dy.data(), x.data(), weights, frame.write(), weight_gradient,
                           nullptr, nullptr);
    if constexpr (Form.bias) {
      put_channel_gradient(frame, ChannelsOf(dy.local(), 1), ChannelValue<T>{dy.data()},
                           bias_gradient);
    }
    if constexpr (Frame::input_gradient)
      frame.state().forward(call, dy.data(), weights, nullptr, Activation::none, dx.data());
  }
  ///@}
};

}  // namespace detail

///@{
/// y[n, o, p] = b[o] + Σ x[n, i, q] w[i, o, k], over the input channels i of o's group and all q
/// and k with q stride - before + k dilation = p. It is the adjoint of a convolution with the same
/// kernel, from Out channels to In: its forward is that one's gradient of the input, and its
/// gradient of the input that one's forward, on the same kernels of the backend. Each extent
/// becomes (n - 1) stride + reach + output padding - padding at both ends, where reach is (taps -
/// 1) dilation + 1. With S... the axes of space, and K the taps along each:
///
///                split::output           split::input             split::group
/// x per rank     [B, In, S...]           [B, In/P, S...]          [B, In/P, S...]
/// w per rank     [In, Out/P, K...]       [In/P, Out, K...]        [In/P, Out/groups, K...]
/// b per rank     [Out/P]                 [Out], added on rank 0   [Out/P]
/// y per rank     [B, Out/P, S'...]       [B, Out, S'...], a       [B, Out/P, S'...]
///                                        summand
/// layout         Replicated ->           Sharded<channel> ->      Sharded<channel> ->
///                Sharded<channel>        Partial                  Sharded<channel>
/// owes           nothing                 nothing                  nothing
///
/// With split::none all ranks have the whole weight, and L -> L for Invariant and Sharded<batch>;
/// for Sharded<batch> the gradients owe an all-reduce.
///
/// With split::height (depth, width) all ranks have the whole weight, whose gradients owe an
/// all-reduce, and Haloed<height, its window> -> Sharded<height>: a rank computes its block of the
/// output's rows from all input rows that reach them.
///
/// Channels, groups and grains are as in `Conv2d`. Bias and activation take one more pass over y,
/// so the two-byte dtypes are rounded twice.
/// sends    nothing
/// throws   shape_error if x has other axes or channels, if nothing is left of an extent, or if a
///          shard of x could end within a group
/// source   torch.nn.ConvTranspose2d; ONNX operator ConvTranspose
///
/// On [batch, channel, width], [batch, channel, height, width] and [batch, channel, depth, height,
/// width]: `ConvTranspose2d<split::output, 64, 32, kernel(2, {.stride = 2})>` doubles both extents.
template <detail::ConvolutionSplit S, std::size_t In, std::size_t Out, Kernel K>
using ConvTranspose1d = detail::ConvolutionTranspose<S, In, Out, detail::form_of<1, K, true>()>;
template <detail::ConvolutionSplit S, std::size_t In, std::size_t Out, Kernel K>
using ConvTranspose2d = detail::ConvolutionTranspose<S, In, Out, detail::form_of<2, K, true>()>;
template <detail::ConvolutionSplit S, std::size_t In, std::size_t Out, Kernel K>
using ConvTranspose3d = detail::ConvolutionTranspose<S, In, Out, detail::form_of<3, K, true>()>;
///@}

/// "ConvTranspose2d<output, 64, 32, 2x2, stride 2x2>".
template <detail::ConvolutionSplit S, std::size_t In, std::size_t Out, auto Form>
struct NameOf<detail::ConvolutionTranspose<S, In, Out, Form>> {
  static std::string name() { return detail::convolution_name<S, In, Out, Form>("ConvTranspose"); }
};

}  // namespace shardwise
