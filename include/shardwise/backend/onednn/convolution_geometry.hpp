#pragma once
// The tensors of a convolution or a pooling as oneDNN describes them.

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/library.hpp"
#include "shardwise/backend/onednn/matrix.hpp"

namespace shardwise::detail::onednn {

/// Where the last window ends on the axis, counted from where the first one begins.
constexpr std::size_t end_of_windows(const SpatialAxis& axis) {
  return (axis.output - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
}

/// How many elements of the axis lie within reach of a window, or before one that does.
constexpr std::size_t elements_read(const SpatialAxis& axis) {
  const std::size_t end = end_of_windows(axis);
  return end < axis.before + axis.input ? end - axis.before : axis.input;
}

/// Whether an image is no shorter than a window along the axis, and every window meets it.
constexpr bool windows_fit(const SpatialAxis& axis) {
  const std::size_t reach = (axis.kernel - 1) * axis.dilation + 1;
  const std::size_t read = elements_read(axis);
  return read >= reach && axis.before < reach && end_of_windows(axis) - axis.before < read + reach;
}

/// Whether windows fit along all three axes.
constexpr bool windows_fit(const ConvolutionCall& call) {
  return windows_fit(call.space[0]) && windows_fit(call.space[1]) && windows_fit(call.space[2]);
}

/// Whether the images have a depth, and not height and width alone.
constexpr bool has_depth(const ConvolutionCall& call) { return call.space[0] != SpatialAxis{}; }

/// Whether the library's kernels for float can be trusted with it. Of 300,000 random convolutions
/// oneDNN 2.6.3 worked out two wrong: images with a depth, strides above 1, and windows that do not
/// fit.
constexpr bool float_is_right(const ConvolutionCall& call) {
  const auto strides = [](const SpatialAxis& axis) { return axis.stride > 1; };
  return !has_depth(call) || windows_fit(call) ||
         std::none_of(call.space.begin(), call.space.end(), strides);
}

/// Whether the library's kernels for bf16 can be trusted with it: one group, or one for each
/// channel; images without a depth; windows that fit, without dilation and, unless of one tap, no
/// shorter than their stride. Of 300,000 random convolutions, oneDNN 2.6.3 worked out ten wrong and
/// refused five, all outside of that, and it crashed where a window lies in nothing but padding.
constexpr bool bf16_is_right(const ConvolutionChannels& channels, const ConvolutionCall& call) {
  const auto skips = [&](const SpatialAxis& axis) {
    return (axis.kernel > 1 && axis.dilation > 1) || (axis.kernel < axis.stride && call.taps() > 1);
  };
  const bool one_group_or_depthwise =
      channels.groups == 1 || (channels.in == 1 && channels.out == 1);
  return one_group_or_depthwise && !has_depth(call) && windows_fit(call) &&
         std::none_of(call.space.begin(), call.space.end(), skips);
}

/// The extents of a tensor, outermost axis first, and how far apart neighbours lie.
class TensorShape {
 public:
  /// An axis further inwards: `extent` elements of the `in_memory` that lie there.
  void append(std::size_t extent, std::size_t in_memory) {
    dims_[count_] = as_dim(extent);
    steps_[count_] = 1;
    for (int outer = 0; outer < count_; ++outer) steps_[outer] *= as_dim(in_memory);
    ++count_;
  }
  void append(std::size_t extent) { append(extent, extent); }

  /// As it lies.
  MemoryDesc plain(dnnl_data_type_t dtype, const ErrorContext& context) const {
    MemoryDesc desc;
    check(desc.create(count_, dims_, dtype, steps_), "the descriptor of a tensor", context);
    return desc;
  }

  /// In whatever layout the library likes best.
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

/// Extents, steps and padding in oneDNN's terms; nothing is empty, and windows see some of the
/// input. Images of fewer than three axes of space count as pictures. oneDNN wants every element of
/// an image to be within reach of a window, but for less than a stride: rows behind that, which
/// nobody reads on this rank, are left out of the tensor and stay in memory.
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
  /// Whether y is the product of a matrix with each image: one group of kernels of one tap, which
  /// meets every element.
  bool multiplies_images = false;
  std::size_t plane = 1;       ///< elements of one channel of y
  bool bf16_is_right = false;  ///< whether the library's kernels for bf16 can be trusted with it

 private:
  void append(const SpatialAxis& axis, std::size_t i) {
    const std::size_t read = elements_read(axis);
    leaves_out = leaves_out || read != axis.input;
    multiplies_images = multiplies_images && axis == SpatialAxis{axis.input, axis.input};
    x.append(read, axis.input);
    y.append(axis.output);
    w.append(axis.kernel);
    kernel[i] = as_dim(axis.kernel);
    steps.strides[i] = as_dim(axis.stride);
    steps.dilates[i] = axis.kernel == 1 ? 0 : as_dim(axis.dilation) - 1;  // pooling refuses others
    steps.before[i] = as_dim(axis.before);
    steps.after[i] = as_dim(end_of_windows(axis)) - as_dim(axis.before + read);
  }
};

}  // namespace shardwise::detail::onednn
