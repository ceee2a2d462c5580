#pragma once
// A convolution as cuDNN is told of it: a graph of one operation.

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

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

/// One past the last element, counted from the padding in front, that the windows of any output of
/// an axis reach. There is an output.
constexpr std::size_t end_of_windows(const SpatialAxis& axis) {
  return (axis.output - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
}

/// Of an axis, how many elements the library is told of: all, but where more outputs would follow
/// from them than there are, as on a rank with a part of them.
constexpr std::size_t extent_read(const SpatialAxis& axis) {
  const std::size_t end = end_of_windows(axis);
  const std::size_t padded = axis.before + axis.input;
  return end + axis.stride <= padded ? end - axis.before : axis.input;
}

/// How far windows reach behind the elements of an axis that the library is told of.
constexpr std::size_t padding_behind(const SpatialAxis& axis) {
  const std::size_t padded = axis.before + extent_read(axis);
  return end_of_windows(axis) > padded ? end_of_windows(axis) - padded : 0;
}

/// Whether every sum of a convolution is one over nothing, or over nothing but padding: the library
/// is not asked then.
inline bool has_no_products(const ConvolutionChannels& channels, const ConvolutionCall& call) {
  const auto sees_nothing = [](const SpatialAxis& axis) {
    return axis.input == 0 || axis.output == 0 || end_of_windows(axis) <= axis.before;
  };
  return call.images == 0 || channels.groups * channels.in * channels.out == 0 ||
         std::any_of(call.space.begin(), call.space.end(), sees_nothing);
}

/// Sizes as the library takes them: batch, channels, and two or three axes of space. Tensors are
/// row-major as ConvolutionKernel has them. In the two-byte dtypes the library's fastest engines
/// want channels innermost; it transposes to and from that by itself.
class CudnnGeometry {
 public:
  using Sizes = std::array<std::int64_t, 5>;

  CudnnGeometry(const ConvolutionChannels& channels, const ConvolutionCall& call)
      : first_(call.space[0] == SpatialAxis{} ? 1 : 0) {
    const std::size_t inputs = channels.groups * channels.in;
    const std::size_t outputs = channels.groups * channels.out;
    x_ = {number(call.images), number(inputs)};
    w_ = {number(outputs), number(channels.in)};
    y_ = {number(call.images), number(outputs)};
    Sizes in_memory = x_;
    for (std::size_t k = 0; k < axes(); ++k) {
      const SpatialAxis& axis = call.space[first_ + k];
      const std::size_t read = extent_read(axis);
      leaves_out_ = leaves_out_ || read < axis.input;
      in_memory[2 + k] = number(axis.input);
      x_[2 + k] = number(read);
      w_[2 + k] = number(axis.kernel);
      y_[2 + k] = number(axis.output);
      stride_[k] = number(axis.stride);
      dilation_[k] = number(axis.dilation);
      before_[k] = number(axis.before);
      after_[k] = number(padding_behind(axis));
    }
    x_strides_ = strides_of(in_memory);
  }

  /// Whether there are elements that no window reads. The library is not told of them.
  bool leaves_out() const { return leaves_out_; }

  CudnnDescriptor x(Dtype dtype, std::int64_t alignment) const {
    return tensor('x', dtype, x_, x_strides_, alignment);
  }
  CudnnDescriptor w(Dtype dtype, std::int64_t alignment) const {
    return tensor('w', dtype, w_, strides_of(w_), alignment);
  }
  CudnnDescriptor y(Dtype dtype, std::int64_t alignment) const {
    return tensor('y', dtype, y_, strides_of(y_), alignment);
  }

  /// Strides, dilation and padding; sums are kept in `sums`.
  CudnnDescriptor steps(Dtype sums) const {
    CudnnDescriptor steps(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    steps.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, number(axes()));
    steps.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, cudnn_dtype(sums));
    steps.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    const auto set = [&](cudnnBackendAttributeName_t name,
                         const std::array<std::int64_t, 3>& of_axes) {
      steps.set(name, of_axes.data(), axes());
    };
    set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride_);
    set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation_);
    set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before_);
    set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after_);
    steps.finalize("cudnnBackendFinalize of a convolution's steps");
    return steps;
  }

 private:
  static constexpr std::int64_t number(std::size_t n) { return static_cast<std::int64_t>(n); }

  std::size_t axes() const { return 3 - first_; }

  Sizes strides_of(const Sizes& sizes) const {
    Sizes strides{};
    std::int64_t step = 1;
    for (std::size_t k = 2 + axes(); k-- > 0; step *= sizes[k]) strides[k] = step;
    return strides;
  }

  CudnnDescriptor tensor(std::int64_t id, Dtype dtype, const Sizes& sizes, const Sizes& strides,
                         std::int64_t alignment) const {
    CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, cudnn_dtype(dtype));
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
    const auto set = [&](cudnnBackendAttributeName_t name, const Sizes& of_axes) {
      tensor.set(name, of_axes.data(), 2 + axes());
    };
    set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
    set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    tensor.finalize("cudnnBackendFinalize of a tensor");
    return tensor;
  }

  std::size_t first_;  ///< axis of space that the library is told of
  bool leaves_out_ = false;
  Sizes x_{}, x_strides_{}, w_{}, y_{};
  std::array<std::int64_t, 3> stride_{}, dilation_{}, before_{}, after_{};
};

/// Which of the three products of a convolution. In all of them x, w and y stand for themselves or
/// for their gradients, one of which is the result.
enum class ConvolutionProduct { forward, backward_input, backward_weight };

/// What the library calls an operation and its attributes.
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

/// One product in T, which replaces its result or is added to it, with all that it is described by.
/// Pointers to the three tensors are multiples of `alignment`. Groups follow from the channels of x
/// and w.
template <Real T>
class ConvolutionOperation {
  using A = accumulate_t<T>;

 public:
  ConvolutionOperation(ConvolutionProduct product, const CudnnGeometry& geometry, Write write,
                       std::int64_t alignment)
      : x_(geometry.x(dtype_v<T>, alignment)),
        w_(geometry.w(dtype_v<T>, alignment)),
        y_(geometry.y(dtype_v<T>, alignment)),
        steps_(geometry.steps(dtype_v<A>)),
        operation_(names_of(product).type) {
    const ConvolutionNames names = names_of(product);
    operation_.set(names.x, x_);
    operation_.set(names.w, w_);
    operation_.set(names.y, y_);
    operation_.set(names.steps, steps_);
    operation_.set(names.alpha, A(1));
    operation_.set(names.beta, write == Write::add ? A(1) : A(0));
    operation_.finalize("cudnnBackendFinalize of a convolution");
  }

  const CudnnDescriptor& get() const { return operation_; }

 private:
  CudnnDescriptor x_, w_, y_, steps_, operation_;
};

/// A graph of one operation, which outlives it.
inline CudnnDescriptor graph_of(cudnnHandle_t handle, const CudnnDescriptor& operation) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);  // cuDNN before 9.8 asks for it
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  graph.finalize("cudnnBackendFinalize of a graph");
  return graph;
}

}  // namespace shardwise::detail::cuda
