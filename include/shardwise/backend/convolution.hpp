#pragma once
// What a backend offers for convolutions: a contract beside `Backend`, which one may lack.

#include <array>
#include <concepts>
#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"

namespace shardwise {

/// One axis of space in one call. Output o reads the elements  o stride - before + k dilation,
/// k = 0 ... kernel - 1,  of the input that is here; what lies outside is zero. `before` is the
/// padding in front of that input, so that a rank in the middle of a split axis has none; the
/// padding behind follows. An axis of extent 1 that images lack is `SpatialAxis{}`.
struct SpatialAxis {
  std::size_t input = 1;     ///< extent of the input in memory
  std::size_t output = 1;    ///< extent of the output in memory
  std::size_t kernel = 1;    ///< taps
  std::size_t stride = 1;    ///< elements from the first tap of an output to that of the next
  std::size_t dilation = 1;  ///< elements from one tap to the next
  std::size_t before = 0;    ///< padding in front of the input

  friend constexpr bool operator==(const SpatialAxis&, const SpatialAxis&) = default;
};

/// What one call works on: images in memory and where the taps fall on them.
struct ConvolutionCall {
  std::size_t images = 0;              ///< that are here
  std::array<SpatialAxis, 3> space{};  ///< depth, height and width

  ///@{
  /// Elements of one channel of one image, and taps of one input channel of the kernel.
  constexpr std::size_t input_plane() const { return product(&SpatialAxis::input); }
  constexpr std::size_t output_plane() const { return product(&SpatialAxis::output); }
  constexpr std::size_t taps() const { return product(&SpatialAxis::kernel); }
  ///@}

  friend constexpr bool operator==(const ConvolutionCall&, const ConvolutionCall&) = default;

 private:
  constexpr std::size_t product(std::size_t SpatialAxis::*extent) const {
    return space[0].*extent * space[1].*extent * space[2].*extent;
  }
};

/// Channels of the weight that is here. Each group reads inputs and writes outputs of its own.
struct ConvolutionChannels {
  std::size_t groups = 1;  ///< that are here
  std::size_t in = 0;      ///< input channels of one group
  std::size_t out = 0;     ///< output channels of one group

  friend constexpr bool operator==(const ConvolutionChannels&,
                                   const ConvolutionChannels&) = default;
};

/// The products of one convolution, with what a library keeps for them. All tensors are row-major
/// and dense; I = groups · in, O = groups · out, and D, H, W stand for the extents of `space`:
///
///     x, dx [images, I, D, H, W]     y, dy [images, O, D', H', W']     w, dw [O, in, kD, kH, kW]
///
///     forward    y    = activation(x ⋆ w + bias[O])
///     backward   dw (+)= the adjoint of w -> x ⋆ w, applied to dy,   db (+)= Σ dy,
///                dx   = the adjoint of x -> x ⋆ w, applied to dy
///
/// where (x ⋆ w)[n, o, p] = Σ x[n, i, p stride - before + k dilation] w[o, i, k] over the input
/// channels i of o's group and the taps k. Any extent may be zero, and a sum over nothing writes
/// zeros (or adds nothing). `bias`, `db` and `dx` may be null. Sums are kept in accumulate_t<T>.
/// Kernel, stride and dilation are the same in all calls; images, extents and padding may differ.
template <class K, class T>
concept ConvolutionKernel = requires(K& kernel, const ConvolutionCall& call, const T* in,
                                     Weight<T> weight, T* out, Write write) {
  kernel.forward(call, in, weight, in, Activation::relu, out);
  kernel.backward(call, in, in, weight, write, out, out, out);
};

/// A backend with convolutions in the dtype T: `B::Convolution<T>(backend, channels)` is the kernel
/// of one layer.
/// valid: `ConvolutionBackend<Reference, double>`
template <class B, class T>
concept ConvolutionBackend = Backend<B, T> && requires {
  typename B::template Convolution<T>;
  requires ConvolutionKernel<typename B::template Convolution<T>, T>;
  requires std::constructible_from<typename B::template Convolution<T>, B&, ConvolutionChannels>;
};

}  // namespace shardwise
