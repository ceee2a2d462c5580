#pragma once
// One product of a convolution for cuDNN: a graph of one operation.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/cuda/cudnn_operations.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

/// One product, with everything that its plan depends on. All tensors are row-major as in
/// ConvolutionBackend.
struct ConvolutionProblem {
  ConvolutionProduct product;
  Dtype dtype;
  ConvolutionChannels channels;
  ConvolutionCall call;
  Write write;             ///< whether the result is replaced or added to
  std::int64_t alignment;  ///< alignment of the three tensors' addresses, in bytes

  bool operator==(const ConvolutionProblem&) const = default;
};

/// One past the last element that the windows of any output of an axis read, counted from the begin
/// of the padding. There must be an output.
constexpr std::size_t end_of_windows(const SpatialAxis& axis) {
  return (axis.output - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
}

/// The number of elements of an axis that the library sees. It is smaller than the extent if more
/// outputs than the axis has would follow from all elements, as on a rank with a part of them.
constexpr std::size_t extent_read(const SpatialAxis& axis) {
  const std::size_t end = end_of_windows(axis);
  const std::size_t padded = axis.before + axis.input;
  return end + axis.stride <= padded ? end - axis.before : axis.input;
}

/// The number of elements after those that the library sees that windows reach.
constexpr std::size_t padding_behind(const SpatialAxis& axis) {
  const std::size_t padded = axis.before + extent_read(axis);
  return end_of_windows(axis) > padded ? end_of_windows(axis) - padded : 0;
}

/// Whether images have elements that the library does not see, and so does not write.
inline bool leaves_out(const ConvolutionCall& call) {
  return std::any_of(call.space.begin(), call.space.end(),
                     [](const SpatialAxis& axis) { return extent_read(axis) < axis.input; });
}

/// Whether every sum of a convolution is empty, or over only padding: then the library is not
/// called.
inline bool has_no_products(const ConvolutionChannels& channels, const ConvolutionCall& call) {
  const auto sees_nothing = [](const SpatialAxis& axis) {
    return axis.input == 0 || axis.output == 0 || end_of_windows(axis) <= axis.before;
  };
  return call.images == 0 || channels.groups * channels.in * channels.out == 0 ||
         std::any_of(call.space.begin(), call.space.end(), sees_nothing);
}

/// Elements of the result of a product.
constexpr std::size_t result_size(const ConvolutionProblem& problem) {
  const auto& [groups, in, out] = problem.channels;
  const ConvolutionCall& call = problem.call;
  switch (problem.product) {
    case ConvolutionProduct::backward_input:
      return call.images * groups * in * call.input_plane();
    case ConvolutionProduct::backward_weight:
      return groups * out * in * call.taps();
    case ConvolutionProduct::forward:
      break;
  }
  return call.images * groups * out * call.output_plane();
}

/// `first`, then one number for each axis of space: for height and width, and for depth if images
/// have it.
template <class Number>
CudnnNumbers with_space(std::initializer_list<std::size_t> first, const ConvolutionCall& call,
                        Number number) {
  CudnnNumbers result(first.begin(), first.end());
  for (std::size_t k = call.space[0] == SpatialAxis{} ? 1 : 0; k < call.space.size(); ++k)
    result.push_back(static_cast<std::int64_t>(std::invoke(number, call.space[k])));
  return result;
}

/// A problem as a graph of one operation. The number of groups follows from the channels of x and
/// w.
inline OperationGraph convolution_graph(const ConvolutionProblem& p) {
  const auto& [groups, in, out] = p.channels;
  const ConvolutionCall& call = p.call;
  const CudnnNumbers weight = with_space({groups * out, in}, call, &SpatialAxis::kernel);
  const CudnnNumbers outputs = with_space({call.images, groups * out}, call, &SpatialAxis::output);
  OperationGraph graph;
  const auto tensor = [&](char id, const CudnnNumbers& sizes, const CudnnNumbers& extents) {
    return graph.in_memory(id, cudnn_dtype(p.dtype), sizes, row_major(extents), p.alignment);
  };
  const auto x = tensor('x', with_space({call.images, groups * in}, call, extent_read),
                        with_space({call.images, groups * in}, call, &SpatialAxis::input));
  const auto w = tensor('w', weight, weight);
  const auto y = tensor('y', outputs, outputs);
  graph.convolve({.product = p.product,
                  .strides = with_space({}, call, &SpatialAxis::stride),
                  .dilations = with_space({}, call, &SpatialAxis::dilation),
                  .before = with_space({}, call, &SpatialAxis::before),
                  .behind = with_space({}, call, padding_behind),
                  .write = p.write,
                  .in_double = p.dtype == Dtype::float64},
                 x, w, y);
  return graph;
}

}  // namespace shardwise::detail::cuda
