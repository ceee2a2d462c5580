#pragma once
// Max pooling: one template over the windows, for any number of axes of space.

#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/backend/pooling.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/detail/image_windows.hpp"
#include "shardwise/layers/detail/planes.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/pool_windows.hpp"

namespace shardwise {

namespace detail {

/// See `MaxPool2d`.
template <auto Windows>
class MaxPool {
 public:
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool keeps_features = true;

  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<std::same_as<Wanted, Partial>, Invariant, Wanted>;

  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<!std::same_as<Offered, Partial>,
                                          windowed_t<Windows, Offered>, summed_planes_t<Wanted>>;

  template <Layout In>
  using output_layout = outputs_of_t<In>;

  constexpr Shape output_shape(const Shape& x) const { return pooled_shape<Windows>(x); }

  template <class Frame>
  static auto make_state(Frame& frame) {
    using T = typename Frame::dtype;
    using B = typename Frame::backend_type;
    static_assert(PoolingBackend<B, T>, "the backend has no pooling in this dtype; see its table");
    return typename B::template MaxPooling<T>(frame.backend());
  }

  /// The number of a tap for each output.
  template <class Frame>
  using saved = Buffer;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    auto& kernel = frame.state();
    Buffer& record = frame.saved();
    const PoolingCall call = pooling_call<Windows>(frame, x, y);
    if (Frame::input_gradient && frame.training()) {
      record = {};  // releases the old memory first
      record = frame.take(kernel.record_bytes(call));
    }
    kernel.forward(call, x.data(), y.data(), frame.training() ? record.data() : nullptr);
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    const Buffer record = std::exchange(frame.saved(), {});
    frame.state().backward(pooling_call<Windows>(frame, dx, dy), dy.data(), record.data(),
                           dx.data());
  }
  ///@}
};

}  // namespace detail

///@{
/// y[n, c, p] = the largest x[n, c, p stride - before + k dilation] over the taps k of a window
/// inside the image. Of equal elements the first counts, and only it gets the gradient. An element
/// that is the largest in several windows gets the sum of their gradients. Images are [batch,
/// channel, S...] with S = [W], [H, W] or [D, H, W]. The layer keeps their layout, and an axis of
/// space may be split:
///
///                          x per rank                       y per rank
/// Invariant, Replicated    [B, C, S...]                     [B, C, S'...]
/// Sharded<batch>           [B/P, C, S...]                   [B/P, C, S'...]
/// Sharded<channel>         [B, C/P, S...]                   [B, C/P, S'...]
/// Sharded<height>, ...     the part of H that it reads      its block of H'
///
/// layout   L -> L;   Sharded<A> becomes Haloed<A, Window> -> Sharded<A> if A is an axis of space,
///          unless the windows are its single elements;
///          Partial becomes the preferred layout if that splits batch or channel, else Invariant
/// saves    the number of one tap for each output, not its input
/// sends    nothing
/// throws   shape_error if x is not such images, or smaller than a window
/// source   torch.nn.MaxPool2d
///
/// On [batch, channel, width], [batch, channel, height, width] and [batch, channel, depth, height,
/// width]: `MaxPool2d<2>`, `MaxPool2d<pool(3, {.stride = 2, .padding = 1})>`.
template <PoolWindows P>
using MaxPool1d = detail::MaxPool<detail::pool_windows<1, P>()>;
template <PoolWindows P>
using MaxPool2d = detail::MaxPool<detail::pool_windows<2, P>()>;
template <PoolWindows P>
using MaxPool3d = detail::MaxPool<detail::pool_windows<3, P>()>;
///@}

/// "MaxPool2d<2x2>".
template <auto Windows>
struct NameOf<detail::MaxPool<Windows>> {
  static std::string name() {
    return "MaxPool" + std::to_string(Windows.size()) + "d<" + detail::pool_name(Windows) + '>';
  }
};

}  // namespace shardwise
