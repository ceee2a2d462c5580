#pragma once
// What a backend offers for pooling: a contract beside `Backend`, which one may lack.

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/convolution.hpp"

namespace shardwise {

/// What one call works on: images in memory, of so many channels, and where the taps of the windows
/// fall on them.
struct PoolingCall : ConvolutionCall {
  std::size_t channels = 0;  ///< of each image

  /// Images times channels: each plane is pooled by itself.
  constexpr std::size_t planes() const { return images * channels; }

  friend constexpr bool operator==(const PoolingCall&, const PoolingCall&) = default;
};

/// What a sum over a window is divided by.
enum class Divisor : std::uint8_t {
  taps,     ///< how many taps it has, those on padding too
  elements  ///< how many of them fall on an element
};

/// Maxima over windows, each plane by itself. With the shapes of PoolingCall:
///
///     forward    y[n, c, p] = the largest of x[n, c, p stride - before + k dilation] over the taps
///                k that fall on an element; -infinity if none does, a NaN if any is one
///     backward   dx = Σ dy over the outputs whose maximum lies there
///
/// Of equal maxima the first one in memory counts, and it alone gets the gradient. Which one it was
/// is in `record`, `record_bytes(call)` bytes that forward writes for backward; null if nobody asks
/// for a gradient. Every element of y and dx is written; any extent may be zero.
template <class K, class T>
concept MaxPoolingKernel = requires(K& kernel, const PoolingCall& call, const T* in, T* out,
                                    void* record, const void* recorded) {
  { kernel.record_bytes(call) } -> std::convertible_to<std::size_t>;
  kernel.forward(call, in, out, record);
  kernel.backward(call, in, recorded, out);
};

/// Means over windows, each plane by itself; an element outside counts as zero.
///
///     forward    y[n, c, p] = Σ x[n, c, p stride - before + k dilation] / divisor
///     backward   dx = the adjoint, applied to dy
///
/// Sums are kept in accumulate_t<T>, and a mean over no element is zero.
template <class K, class T>
concept AveragePoolingKernel = requires(K& kernel, const PoolingCall& call, Divisor divisor,
                                        const T* in, T* out) {
  kernel.forward(call, divisor, in, out);
  kernel.backward(call, divisor, in, out);
};

/// A backend with pooling in the dtype T: `B::MaxPooling<T>(backend)` and
/// `B::AveragePooling<T>(backend)` are the kernels of one layer each.
/// valid: `PoolingBackend<Reference, bf16>`
template <class B, class T>
concept PoolingBackend = Backend<B, T> && requires {
  typename B::template MaxPooling<T>;
  typename B::template AveragePooling<T>;
  requires MaxPoolingKernel<typename B::template MaxPooling<T>, T>;
  requires AveragePoolingKernel<typename B::template AveragePooling<T>, T>;
  requires std::constructible_from<typename B::template MaxPooling<T>, B&>;
  requires std::constructible_from<typename B::template AveragePooling<T>, B&>;
};

}  // namespace shardwise
