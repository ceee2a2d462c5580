#pragma once
// The convolutions of a backend, an optional contract besides `Backend`.

#include <array>
#include <concepts>
#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"

namespace shardwise {

/// One axis of space in one call. Output o reads the elements  o stride - before + k dilation, k =
/// 0 ... kernel - 1,  of the rank's input; elements outside it are zero. `before` is the padding
/// before the rank's input, so a rank in the middle of a split axis has none; the padding after it
/// follows from the other numbers. `SpatialAxis{}` is an axis that images lack.
struct SpatialAxis {
  std::size_t input = 1;     ///< extent of the input in memory
  std::size_t output = 1;    ///< extent of the output in memory
  std::size_t kernel = 1;    ///< taps
  std::size_t stride = 1;    ///< distance of neighbouring outputs' first taps, in elements
  std::size_t dilation = 1;  ///< distance of neighbouring taps, in elements
  std::size_t before = 0;    ///< padding before the input

  friend constexpr bool operator==(const SpatialAxis&, const SpatialAxis&) = default;
};

/// The tensors of one call: images in memory, and the positions of the taps on them.
struct ConvolutionCall {
  std::size_t images = 0;            ///< number of images in memory
  std::array<SpatialAxis, 3> space;  ///< depth, height and width

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

/// Channels of the weight in memory. Each group has its own inputs and outputs.
struct ConvolutionChannels {
  std::size_t groups = 1;  ///< number of groups in memory
  std::size_t in = 0;      ///< input channels of one group
  std::size_t out = 0;     ///< output channels of one group

  friend constexpr bool operator==(const ConvolutionChannels&,
                                   const ConvolutionChannels&) = default;
};

namespace detail {
/// The three products of a convolution. In all of them x, w and y are tensors or their gradients;
/// the result is one of the three.
enum class ConvolutionProduct { forward, backward_input, backward_weight };

/// The products of one convolution, see `ConvolutionBackend`.
template <class K, class T>
concept ConvolutionKernel = requires(K& kernel, const ConvolutionCall& call, const T* in,
                                     Weight<T> weight, T* out, Write write) {
  kernel.forward(call, in, weight, in, Activation::relu, out);
  kernel.backward(call, in, in, weight, write, out, out, out);
};

}  // namespace detail

/// A backend with convolutions in the dtype T: `B::Convolution<T>(backend, channels)` is the kernel
/// of one layer: its products, with the state of a library. All tensors are row-major and dense;
/// I = groups · in, O = groups · out, and D, H, W are the extents of `space`:
///
///     x, dx [images, I, D, H, W]     y, dy [images, O, D', H', W']     w, dw [O, in, kD, kH, kW]
///
///     kernel.forward(call, x, weight, bias, activation, y)
///         y    = activation(x ⋆ w + bias[O])
///     kernel.backward(call, x, dy, weight, write, dw, db, dx)
///         dw (+)= the adjoint of w -> x ⋆ w, applied to dy,   db (+)= Σ dy,
///         dx   = the adjoint of x -> x ⋆ w, applied to dy
///
/// where (x ⋆ w)[n, o, p] = Σ x[n, i, p stride - before + k dilation] w[o, i, k] over the input
/// channels i of o's group and the taps k. Any extent may be zero, and an empty sum writes zeros
/// (or adds nothing). `bias`, `db` and `dx` may be null. For the gradient of the input alone dw, db
/// and x are null. Sums are computed in accumulate_t<T>. Kernel, stride and dilation are the same
/// in all calls; images, extents and padding may differ.
/// valid: `ConvolutionBackend<Reference, double>`
template <class B, class T>
concept ConvolutionBackend = Backend<B, T> && requires {
  typename B::template Convolution<T>;
  requires detail::ConvolutionKernel<typename B::template Convolution<T>, T>;
  requires std::constructible_from<typename B::template Convolution<T>, B&, ConvolutionChannels>;
};

}  // namespace shardwise
