#pragma once
// The tensors of a convolution or a pooling as oneDNN describes them.

#include <oneapi/dnnl/dnnl.h>

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
  MemoryDesc plain(dnnl_data_type_t dtype, const Purpose& purpose) const {
    MemoryDesc desc;
    check(desc.create(count_, dims_, dtype, steps_), "the descriptor of a tensor", purpose);
    return desc;
  }

  /// In whatever layout the library likes best.
  MemoryDesc any(dnnl_data_type_t dtype, const Purpose& purpose) const {
    MemoryDesc desc;
    check(desc.create(count_, dims_, dtype, dnnl_format_tag_any), "the descriptor of a tensor",
          purpose);
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
    const std::size_t first = call.space[0] == SpatialAxis{} ? 1 : 0;
    for (std::size_t i = first; i < 3; ++i) append(call.space[i], i - first);
  }

  TensorShape x, w, bias, y;
  std::array<dnnl_dim_t, 3> kernel{};
  ConvolutionSteps steps;
  bool leaves_out = false;  ///< whether x lacks elements of the images in memory
  /// Whether y is the product of a matrix with each image: one group of kernels of one tap, which
  /// meets every element.
  bool multiplies_images = false;
  std::size_t plane = 1;  ///< elements of one channel of y
  /// Whether along every axis an image is no shorter than a window, and every window meets it.
  bool windows_fit = true;

 private:
  void append(const SpatialAxis& axis, std::size_t i) {
    const std::size_t end = end_of_windows(axis);
    const std::size_t beyond = axis.before + axis.input;
    const std::size_t read = end < beyond ? end - axis.before : axis.input;
    leaves_out = leaves_out || read != axis.input;
    const std::size_t reach = (axis.kernel - 1) * axis.dilation + 1;
    windows_fit =
        windows_fit && read >= reach && axis.before < reach && end - axis.before < read + reach;
    multiplies_images = multiplies_images && axis == SpatialAxis{axis.input, axis.input};
    x.append(read, axis.input);
    y.append(axis.output);
    w.append(axis.kernel);
    kernel[i] = as_dim(axis.kernel);
    steps.strides[i] = as_dim(axis.stride);
    steps.dilates[i] = axis.kernel == 1 ? 0 : as_dim(axis.dilation) - 1;  // pooling refuses others
    steps.before[i] = as_dim(axis.before);
    steps.after[i] = as_dim(end) - as_dim(axis.before + read);
  }
};

}  // namespace shardwise::detail::onednn
