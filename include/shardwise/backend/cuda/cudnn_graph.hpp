#pragma once
// One product of a convolution for cuDNN: a graph of one operation.

#include <cudnn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/cuda/cudnn_descriptor.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

constexpr cudnnDataType_t cudnn_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64:
      return CUDNN_DATA_DOUBLE;
    case Dtype::bfloat16:
      return CUDNN_DATA_BFLOAT16;
    case Dtype::float16:
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

/// One product, with everything that its plan depends on. All tensors are row-major as in
/// ConvolutionKernel.
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

using CudnnNumbers = std::vector<std::int64_t>;

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

/// The strides of a dense tensor whose last axis is innermost.
inline CudnnNumbers row_major(const CudnnNumbers& sizes) {
  CudnnNumbers strides(sizes.size(), 1);
  for (std::size_t k = sizes.size() - 1; k-- > 0;) strides[k] = strides[k + 1] * sizes[k + 1];
  return strides;
}

/// A tensor that has the name `id` in a run of a plan.
inline CudnnDescriptor cudnn_tensor(std::int64_t id, Dtype dtype, std::int64_t alignment,
                                    const CudnnNumbers& sizes, const CudnnNumbers& strides) {
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, cudnn_dtype(dtype));
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes.data(), sizes.size());
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides.data(), strides.size());
  tensor.finalize("cudnnBackendFinalize of a tensor");
  return tensor;
}

/// Strides, dilation and padding; sums have the dtype `sums`.
inline CudnnDescriptor cudnn_steps(const ConvolutionCall& call, Dtype sums) {
  CudnnDescriptor steps(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const auto set = [&](cudnnBackendAttributeName_t name, auto number) {
    const CudnnNumbers numbers = with_space({}, call, number);
    steps.set(name, numbers.data(), numbers.size());
  };
  const auto axes = static_cast<std::int64_t>(with_space({}, call, &SpatialAxis::input).size());
  steps.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, axes);
  steps.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, cudnn_dtype(sums));
  steps.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &SpatialAxis::stride);
  set(CUDNN_ATTR_CONVOLUTION_DILATIONS, &SpatialAxis::dilation);
  set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &SpatialAxis::before);
  set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding_behind);
  steps.finalize("cudnnBackendFinalize of a convolution's steps");
  return steps;
}

/// The library's names of an operation and its attributes.
struct ConvolutionNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, w, y, steps, alpha, beta;
};

constexpr ConvolutionNames names_of(ConvolutionProduct product) {
  switch (product) {
    case ConvolutionProduct::backward_input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvolutionProduct::backward_weight:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    case ConvolutionProduct::forward:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

/// A problem as an operation with its descriptors. The number of groups follows from the channels
/// of x and w.
struct ConvolutionOperation {
  explicit ConvolutionOperation(const ConvolutionProblem& problem)
      : x(x_of(problem)),
        w(w_of(problem)),
        y(y_of(problem)),
        steps(cudnn_steps(problem.call, sums_of(problem))),
        operation(names_of(problem.product).type) {
    const ConvolutionNames names = names_of(problem.product);
    operation.set(names.x, x);
    operation.set(names.w, w);
    operation.set(names.y, y);
    operation.set(names.steps, steps);
    const auto scale = [&](auto one, auto zero) {
      operation.set(names.alpha, one);
      operation.set(names.beta, problem.write == Write::add ? one : zero);
    };
    sums_of(problem) == Dtype::float64 ? scale(1.0, 0.0) : scale(1.0F, 0.0F);
    operation.finalize("cudnnBackendFinalize of a convolution");
  }

  CudnnDescriptor x, w, y, steps, operation;

 private:
  static Dtype sums_of(const ConvolutionProblem& p) {
    return p.dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32;
  }
  static CudnnDescriptor x_of(const ConvolutionProblem& p) {
    const std::size_t images = p.call.images, channels = p.channels.groups * p.channels.in;
    return cudnn_tensor('x', p.dtype, p.alignment,
                        with_space({images, channels}, p.call, extent_read),
                        row_major(with_space({images, channels}, p.call, &SpatialAxis::input)));
  }
  static CudnnDescriptor w_of(const ConvolutionProblem& p) {
    const CudnnNumbers sizes = with_space({p.channels.groups * p.channels.out, p.channels.in},
                                          p.call, &SpatialAxis::kernel);
    return cudnn_tensor('w', p.dtype, p.alignment, sizes, row_major(sizes));
  }
  static CudnnDescriptor y_of(const ConvolutionProblem& p) {
    const CudnnNumbers sizes = with_space({p.call.images, p.channels.groups * p.channels.out},
                                          p.call, &SpatialAxis::output);
    return cudnn_tensor('y', p.dtype, p.alignment, sizes, row_major(sizes));
  }
};

}  // namespace shardwise::detail::cuda
