#pragma once
// The tensors of a convolution or a pooling, described for oneDNN.

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/library.hpp"
#include "shardwise/backend/onednn/matrix.hpp"

namespace shardwise::detail::onednn {

/// The end of the last window on the axis, counted from the begin of the first one.
constexpr std::size_t end_of_windows(const SpatialAxis& axis) {
  return (axis.output - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
}

/// The number of elements of the axis up to the last one that a window reads.
constexpr std::size_t elements_read(const SpatialAxis& axis) {
  const std::size_t end = end_of_windows(axis);
  return end < axis.before + axis.input ? end - axis.before : axis.input;
}

/// The number of elements of the axis in the library's tensor. oneDNN requires that windows read
/// all of them, except fewer than a stride at the end. Its fastest kernels for one tap take images
/// with whole strides only.
constexpr std::size_t elements_described(const SpatialAxis& axis) {
  const std::size_t read = elements_read(axis);
  return axis.kernel == 1 ? std::min(axis.input, read + axis.stride - 1) : read;
}

/// Whether an image is at least as long as a window along the axis, and every window reads some of
/// it.
constexpr bool windows_fit(const SpatialAxis& axis) {
  const std::size_t reach = (axis.kernel - 1) * axis.dilation + 1;
  const std::size_t read = elements_read(axis);
  return read >= reach && axis.before < reach && end_of_windows(axis) - axis.before < read + reach;
}

/// Whether windows fit along all three axes.
constexpr bool windows_fit(const ConvolutionCall& call) {
  return windows_fit(call.space[0]) && windows_fit(call.space[1]) && windows_fit(call.space[2]);
}

/// Whether the images have a depth axis.
constexpr bool has_depth(const ConvolutionCall& call) { return call.space[0] != SpatialAxis{}; }

/// Whether the library's gradient of a weight is correct for windows along a depth. Where windows
/// reach past both ends of an image, oneDNN 2.6.3 may count the taps inside it wrongly, and write
/// past the gradient. It does not if only one window begins before the image, if one begins at its
/// start, or if a window and a stride fit into it; and, where windows are longer than the image, if
/// there are at least as many windows as elements of padding before it.
constexpr bool depth_is_right(const SpatialAxis& depth) {
  if (!windows_fit(depth)) return depth.before <= depth.output;
  const std::size_t reach = (depth.kernel - 1) * depth.dilation + 1;
  return depth.before <= depth.stride || depth.before % depth.stride == 0 ||
         elements_read(depth) >= reach + depth.stride;
}

/// Whether the library's kernels for float are correct for this call. Of 2,000,000 random
/// convolutions of images with a depth, oneDNN 2.6.3 computed six wrongly in the depth, and of
/// 300,000 others two where strides are above 1 and windows do not fit.
constexpr bool float_is_right(const ConvolutionCall& call) {
  const auto strides = [](const SpatialAxis& axis) { return axis.stride > 1; };
  return !has_depth(call) ||
         ((windows_fit(call) || std::none_of(call.space.begin(), call.space.end(), strides)) &&
          depth_is_right(call.space[0]));
}

/// Whether the library's kernels for bf16 are correct for this call: one group, or one for each
/// channel; images without a depth; windows that fit, without dilation and, if they have several
/// taps, at least as long as their stride. Of 300,000 random convolutions oneDNN 2.6.3 computed ten
/// wrongly and rejected five, all of other kinds, and it crashed for a window on only padding.
constexpr bool bf16_is_right(const ConvolutionChannels& channels, const ConvolutionCall& call) {
  const auto skips = [&](const SpatialAxis& axis) {
    return (axis.kernel > 1 && axis.dilation > 1) || (axis.kernel < axis.stride && call.taps() > 1);
  };
  const bool one_group_or_depthwise =
      channels.groups == 1 || (channels.in == 1 && channels.out == 1);
  return one_group_or_depthwise && !has_depth(call) && windows_fit(call) &&
         std::none_of(call.space.begin(), call.space.end(), skips);
}

/// The extents of a tensor, outermost axis first, and its strides.
class TensorShape {
 public:
  /// Adds the next inner axis: `extent` elements of the `in_memory` elements in memory.
  void append(std::size_t extent, std::size_t in_memory) {
    dims_[count_] = as_dim(extent);
    steps_[count_] = 1;
    for (int outer = 0; outer < count_; ++outer) steps_[outer] *= as_dim(in_memory);
    ++count_;
  }
  void append(std::size_t extent) { append(extent, extent); }

  /// In the layout of its memory.
  MemoryDesc plain(dnnl_data_type_t dtype, const ErrorContext& context) const {
    MemoryDesc desc;
    check(desc.create(count_, dims_, dtype, steps_), "the descriptor of a tensor", context);
    return desc;
  }

  /// In the layout that the library chooses.
  MemoryDesc any(dnnl_data_type_t dtype, const ErrorContext& context) const {
    MemoryDesc desc;
    check(desc.create(count_, dims_, dtype, dnnl_format_tag_any), "the descriptor of a tensor",
          context);
    return desc;
  }

 private:
  int count_ = 0;
  dnnl_dims_t dims_{};
  dnnl_dims_t steps_{};
};

/// Extents, steps and padding for oneDNN; no extent is empty, and windows read some of the input.
/// Images with fewer than three axes of space are described with two. Elements after
/// `elements_described` are left out of the tensor, and stay in memory.
class ConvolutionGeometry {
 public:
  ConvolutionGeometry(const ConvolutionChannels& channels, const ConvolutionCall& call) {
    x.append(call.images);
    x.append(channels.groups * channels.in);
    y.append(call.images);
    y.append(channels.groups * channels.out);
    if (channels.groups > 1) w.append(channels.groups);
    w.append(channels.out);
    w.append(channels.in);
    bias.append(channels.groups * channels.out);
    multiplies_images = channels.groups == 1;
    plane = call.output_plane();
    bf16_is_right = onednn::bf16_is_right(channels, call);
    const std::size_t first = has_depth(call) ? 0 : 1;
    for (std::size_t i = first; i < 3; ++i) append(call.space[i], i - first);
  }

  TensorShape x, w, bias, y;
  std::array<dnnl_dim_t, 3> kernel{};
  ConvolutionSteps steps;
  bool leaves_out = false;  ///< whether x lacks elements of the images in memory
  /// Whether y is the product of a matrix with each image: one group, and kernels of one tap that
  /// read every element.
  bool multiplies_images = false;
  std::size_t plane = 1;       ///< elements of one channel of y
  bool bf16_is_right = false;  ///< whether the library's kernels for bf16 are correct

 private:
  void append(const SpatialAxis& axis, std::size_t i) {
    const std::size_t described = elements_described(axis);
    const dnnl_dim_t after = as_dim(end_of_windows(axis)) - as_dim(axis.before + described);
    leaves_out = leaves_out || described != axis.input;
    multiplies_images = multiplies_images && axis == SpatialAxis{axis.input, axis.input};
    x.append(described, axis.input);
    y.append(axis.output);
    w.append(axis.kernel);
    kernel[i] = as_dim(axis.kernel);
    steps.strides[i] = as_dim(axis.stride);
    steps.dilates[i] = axis.kernel == 1 ? 0 : as_dim(axis.dilation) - 1;  // pooling needs this 0
    steps.before[i] = as_dim(axis.before);
    steps.after[i] = std::max<dnnl_dim_t>(0, after);
  }
};

}  // namespace shardwise::detail::onednn
