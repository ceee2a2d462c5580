#pragma once
// The shapes of ResNet-50's convolutions, as what a kernel is asked to do.

#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/backend/convolution.hpp"

namespace bench {

/// Images of `extent` x `extent` elements, padded so that stride 1 keeps the extent.
struct ConvolutionShape {
  std::size_t in, out, extent, kernel;
  std::size_t stride = 1;

  std::size_t outputs() const { return (extent - 1) / stride + 1; }
  std::size_t padding() const { return kernel / 2; }

  std::string name() const {
    const auto text = [](std::size_t n) { return std::to_string(n); };
    return text(kernel) + 'x' + text(kernel) + ", " + text(in) + " -> " + text(out) +
           " channels, " + text(extent) + 'x' + text(extent) +
           (stride == 1 ? "" : ", stride " + text(stride));
  }
};

/// One of each kind and extent, or with `all` every different one but the first layer's.
/// source   He et al. 2016, table 1, with the strides of torchvision.models.resnet50
inline std::vector<ConvolutionShape> resnet50(bool all = false) {
  std::vector<ConvolutionShape> shapes{
      {64, 64, 56, 3},  {128, 128, 28, 3}, {256, 256, 14, 3},  {512, 512, 7, 3},
      {64, 256, 56, 1}, {512, 128, 28, 1}, {256, 1024, 14, 1}, {2048, 512, 7, 1},
  };
  if (!all) return shapes;
  const std::vector<ConvolutionShape> more{
      {64, 64, 56, 1},       {256, 64, 56, 1},       {256, 128, 56, 1},    {128, 512, 28, 1},
      {512, 256, 28, 1},     {1024, 256, 14, 1},     {1024, 512, 14, 1},   {512, 2048, 7, 1},
      {128, 128, 56, 3, 2},  {256, 256, 28, 3, 2},   {512, 512, 14, 3, 2}, {256, 512, 56, 1, 2},
      {512, 1024, 28, 1, 2}, {1024, 2048, 14, 1, 2},
  };
  shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

/// One rank's part of a convolution: its channels and what it computes of the images.
struct ConvolutionShard {
  shardwise::ConvolutionChannels channels;
  shardwise::ConvolutionCall call;

  std::size_t inputs() const { return channels.groups * channels.in; }
  std::size_t outputs() const { return channels.groups * channels.out; }
  std::size_t x_size() const { return call.images * inputs() * call.input_plane(); }
  std::size_t y_size() const { return call.images * outputs() * call.output_plane(); }
  std::size_t w_size() const { return outputs() * channels.in * call.taps(); }

  ///@{
  /// The most products that one element of y, dx and dw is a sum of; db has as many summands as dw.
  std::size_t y_terms() const { return channels.in * call.taps(); }
  std::size_t dx_terms() const { return channels.out * call.taps(); }
  std::size_t dw_terms() const { return call.images * call.output_plane(); }
  ///@}
};

/// All of it, in so many groups.
inline ConvolutionShard whole(const ConvolutionShape& shape, std::size_t images,
                              std::size_t groups = 1) {
  const shardwise::SpatialAxis axis{shape.extent,   shape.outputs(), shape.kernel, shape.stride, 1,
                                    shape.padding()};
  return {{groups, shape.in / groups, shape.out / groups},
          {images, {shardwise::SpatialAxis{}, axis, axis}}};
}

}  // namespace bench
