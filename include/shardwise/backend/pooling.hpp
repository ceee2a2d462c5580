#pragma once
// The pooling of a backend, an optional contract besides `Backend`.

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/convolution.hpp"

namespace shardwise {

/// The tensors of one call: images with their channels in memory, and the positions of the windows'
/// taps on them.
struct PoolingCall : ConvolutionCall {
  /// The divisor of a sum over a window.
  enum class Divisor : std::uint8_t {
    taps,     ///< the number of its taps, including those on padding
    elements  ///< the number of its taps on elements
  };

  std::size_t channels = 0;  ///< of each image

  /// Images times channels: each plane is pooled separately.
  constexpr std::size_t planes() const { return images * channels; }

  friend constexpr bool operator==(const PoolingCall&, const PoolingCall&) = default;
};

namespace detail {

/// Maxima over windows, see `PoolingBackend`.
template <class K, class T>
concept MaxPoolingKernel = requires(K& kernel, const PoolingCall& call, const T* in, T* out,
                                    void* record, const void* recorded) {
  { kernel.record_bytes(call) } -> std::convertible_to<std::size_t>;
  kernel.forward(call, in, out, record);
  kernel.backward(call, in, recorded, out);
};

/// Means over windows, see `PoolingBackend`.
template <class K, class T>
concept AveragePoolingKernel = requires(K& kernel, const PoolingCall& call,
                                        PoolingCall::Divisor divisor, const T* in, T* out) {
  kernel.forward(call, divisor, in, out);
  kernel.backward(call, divisor, in, out);
};

}  // namespace detail

/// A backend with pooling in the dtype T: `B::MaxPooling<T>(backend)` and
/// `B::AveragePooling<T>(backend)` are each the kernels of one layer, for each plane separately.
/// With the shapes of PoolingCall:
///
///     max.forward(call, x, y, record)
///         y[n, c, p] = the largest of x[n, c, p stride - before + k dilation] over the taps k on
///         elements; -infinity if there are none, NaN if an element is NaN
///     max.backward(call, dy, record, dx)
///         dx = Σ dy over the outputs whose maximum is this element
///
///     average.forward(call, divisor, x, y)
///         y[n, c, p] = Σ x[n, c, p stride - before + k dilation] / divisor, where an element
///         outside counts as zero
///     average.backward(call, divisor, dy, dx)
///         dx = the adjoint, applied to dy
///
/// Of equal maxima the first one in memory counts, and only it gets the gradient. Forward stores
/// its tap in `record`, `max.record_bytes(call)` bytes for backward; null if no backward follows.
/// Sums are computed in accumulate_t<T>, and a mean over no element is zero. Every element of y and
/// dx is written; any extent may be zero.
/// valid: `PoolingBackend<Reference, bf16>`
template <class B, class T>
concept PoolingBackend = Backend<B, T> && requires {
  typename B::template MaxPooling<T>;
  typename B::template AveragePooling<T>;
  requires detail::MaxPoolingKernel<typename B::template MaxPooling<T>, T>;
  requires detail::AveragePoolingKernel<typename B::template AveragePooling<T>, T>;
  requires std::constructible_from<typename B::template MaxPooling<T>, B&>;
  requires std::constructible_from<typename B::template AveragePooling<T>, B&>;
};

}  // namespace shardwise
