#pragma once
// The shapes of ResNet-50's convolutions, as what a kernel is asked to do.

#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/core/shape.hpp"

namespace bench {

/// Images of `extent` x `extent` elements, padded so that stride 1 keeps the extent.
struct ConvolutionShape {
  std::size_t in, out, extent, kernel;
  std::size_t stride = 1;

  constexpr std::size_t outputs() const { return (extent - 1) / stride + 1; }
  constexpr std::size_t padding() const { return kernel / 2; }

  std::string name() const {
    const auto text = [](std::size_t n) { return std::to_string(n); };
    return text(kernel) + 'x' + text(kernel) + ", " + text(in) + " -> " + text(out) +
           " channels, " + text(extent) + 'x' + text(extent) +
           (stride == 1 ? "" : ", stride " + text(stride));
  }
};

/// One of each kind and extent.
/// source   He et al. 2016, table 1
inline std::vector<ConvolutionShape> resnet50() {
  return {
      {64, 64, 56, 3},  {128, 128, 28, 3}, {256, 256, 14, 3},  {512, 512, 7, 3},
      {64, 256, 56, 1}, {512, 128, 28, 1}, {256, 1024, 14, 1}, {2048, 512, 7, 1},
  };
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

  shardwise::Shape x_shape() const {
    using enum shardwise::Axis;
    return {{batch, call.images},
            {channel, inputs()},
            {height, call.space[1].input},
            {width, call.space[2].input}};
  }

  ///@{
  /// The most products that one element of y, dx and dw is a sum of; db has as many summands as dw.
  std::size_t y_terms() const { return channels.in * call.taps(); }
  std::size_t dx_terms() const { return channels.out * call.taps(); }
  std::size_t dw_terms() const { return call.images * call.output_plane(); }
  ///@}
};

/// All of it.
inline ConvolutionShard whole(const ConvolutionShape& shape, std::size_t images) {
  const shardwise::SpatialAxis axis{shape.extent,   shape.outputs(), shape.kernel, shape.stride, 1,
                                    shape.padding()};
  return {{1, shape.in, shape.out}, {images, {shardwise::SpatialAxis{}, axis, axis}}};
}

}  // namespace bench
