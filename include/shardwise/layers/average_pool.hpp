#pragma once
// Average pooling: one template over the windows, for any number of axes of space.

#include <algorithm>
#include <string>

#include "shardwise/backend/pooling.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/detail/image_windows.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/pool_windows.hpp"
#include "shardwise/layout/window.hpp"

namespace shardwise {

namespace detail {

template <auto Windows>
inline constexpr bool has_padding = std::any_of(Windows.begin(), Windows.end(),
                                                [](const Window& w) {
                                                  return w.before + w.after > 0;
                                                });

template <bool CeilMode, bool HasPadding, bool CountsPadding>
consteval bool ceil_mode_counts_no_padding() {
  static_assert(
      !(CeilMode && HasPadding && CountsPadding),
      "An average in ceil mode does not count its padding, since its last window has more "
      "taps outside of the image than the padding has: add .counts_padding = false, or "
      "leave the padding or .ceil_mode away.");
  return true;
}

/// See `AveragePool2d`.
template <auto Windows, bool CountsPadding>
class AveragePool : public LinearInWindows<Windows> {
  static constexpr bool counts_all = CountsPadding && !Windows[0].ceil_mode;
  static constexpr PoolingCall::Divisor divisor =
      counts_all ? PoolingCall::Divisor::taps : PoolingCall::Divisor::elements;

  static_assert(
      ceil_mode_counts_no_padding<Windows[0].ceil_mode, has_padding<Windows>, CountsPadding>());

 public:
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;

  template <class Frame>
  static auto make_state(Frame& frame) {
    using T = typename Frame::dtype;
    using B = typename Frame::backend_type;
    static_assert(PoolingBackend<B, T>, "the backend has no pooling in this dtype; see its table");
    return typename B::template AveragePooling<T>(frame.backend());
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    frame.state().forward(pooling_call<Windows>(frame, x, y), divisor, x.data(), y.data());
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    frame.state().backward(pooling_call<Windows>(frame, dx, dy), divisor, dy.data(), dx.data());
  }
  ///@}
};

}  // namespace detail

///@{
/// y[n, c, p] = Σ x[n, c, p stride - before + k dilation] / divisor over the taps k of a window,
/// where elements outside the image are zero. The divisor is the number of taps or, with
/// `.counts_padding = false`, of the taps inside the image. Images, and the rank's part of them,
/// are as in `MaxPool2d`.
///
/// With `.ceil_mode = true` the taps of a last window that are beyond the image do not count.
///
/// layout   L -> L, also Partial, since the layer is linear: the sum over ranks follows it, on
///          fewer elements;   Sharded<A> as in `MaxPool2d`
/// sends    nothing
/// throws   shape_error if x is not such images, or smaller than a window
/// source   torch.nn.AvgPool2d; ONNX operator AveragePool, which also has dilation
///
/// On [batch, channel, width], [batch, channel, height, width] and [batch, channel, depth, height,
/// width]: `AveragePool2d<2>`, `AveragePool2d<pool(3, {.padding = 1, .counts_padding = false})>`.
template <PoolWindows P>
using AveragePool1d = detail::AveragePool<detail::pool_windows<1, P>(), P.options.counts_padding>;
template <PoolWindows P>
using AveragePool2d = detail::AveragePool<detail::pool_windows<2, P>(), P.options.counts_padding>;
template <PoolWindows P>
using AveragePool3d = detail::AveragePool<detail::pool_windows<3, P>(), P.options.counts_padding>;
///@}

/// "AveragePool2d<3x3, padding 1x1, not counted>".
template <auto Windows, bool CountsPadding>
struct NameOf<detail::AveragePool<Windows, CountsPadding>> {
  static std::string name() {
    return "AveragePool" + std::to_string(Windows.size()) + "d<" + detail::pool_name(Windows) +
           (CountsPadding ? ">" : ", not counted>");
  }
};

}  // namespace shardwise
