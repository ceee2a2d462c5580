#pragma once
// Graphs of operations for cuDNN, as plain data and as its descriptors.

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <variant>
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

using CudnnNumbers = std::vector<std::int64_t>;

/// The strides of a dense tensor whose last axis is innermost.
inline CudnnNumbers row_major(const CudnnNumbers& sizes) {
  CudnnNumbers strides(sizes.size(), 1);
  for (std::size_t k = sizes.size() - 1; k-- > 0;) strides[k] = strides[k + 1] * sizes[k + 1];
  return strides;
}

/// A tensor of a graph: in memory, a number that a run passes by value, or, if neither, one that
/// only the operations of the graph see.
struct GraphTensor {
  std::int64_t id;  ///< its name in a run of a plan
  cudnnDataType_t dtype;
  CudnnNumbers sizes;
  CudnnNumbers strides;
  bool in_memory = false;
  std::optional<float> number = std::nullopt;
  std::int64_t alignment = 16;  ///< of its address, in bytes
};

///@{
/// The kinds of operations. `a`, `x`, `b` and `t` are the operands in their order, y the result. An
/// operand of fewer elements along an axis repeats them.
struct MatrixProduct {};  ///< y = a b of the last two axes; b may have fewer matrices, each for
                          ///< several neighbouring ones of a
struct Pointwise {
  cudnnPointwiseMode_t function;          ///< y = function(x, b, t) of each element
  std::int64_t axis = -1;                 ///< of CUDNN_POINTWISE_GEN_INDEX, or -1
  cudnnDataType_t in = CUDNN_DATA_FLOAT;  ///< computes in this dtype
};
struct Reduction {
  cudnnReduceTensorOp_t function;  ///< over the elements of x that y has fewer of
};
struct Reordering {};  ///< the same elements of memory in other axes
struct Convolution {
  ConvolutionProduct product;  ///< the operands are x, w and y without the result
  CudnnNumbers strides, dilations, before, behind;  ///< for each axis of space
  Write write;
  bool in_double;  ///< the dtype of sums; else they are float
};
///@}

struct GraphOperation {
  std::variant<MatrixProduct, Pointwise, Reduction, Reordering, Convolution> kind;
  std::vector<std::size_t> operands;  ///< tensors by their numbers in the graph
  std::size_t result;
};

/// Operations in an order in which they can be done. A new tensor that an operation returns is
/// float, dense and row-major if nothing else is said.
class OperationGraph {
 public:
  using Tensor = std::size_t;  ///< its number in the graph
  using Operands = std::initializer_list<Tensor>;

  ///@{
  /// New tensors.
  Tensor in_memory(std::int64_t id, cudnnDataType_t dtype, const CudnnNumbers& sizes,
                   const CudnnNumbers& strides, std::int64_t alignment = 16) {
    return add({id, dtype, sizes, strides, true, std::nullopt, alignment});
  }
  Tensor number(float value) {
    return add({next_id(), CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, value});
  }
  Tensor between(const CudnnNumbers& sizes, cudnnDataType_t dtype = CUDNN_DATA_FLOAT) {
    return between(sizes, row_major(sizes), dtype);
  }
  Tensor between(const CudnnNumbers& sizes, const CudnnNumbers& strides, cudnnDataType_t dtype) {
    return add({next_id(), dtype, sizes, strides});
  }
  ///@}

  ///@{
  /// Operations; the ones without a result to write to return a new tensor.
  void product(Tensor a, Tensor b, Tensor y) {
    operations_.push_back({MatrixProduct{}, {a, b}, y});
  }
  Tensor product(Tensor a, Tensor b, const CudnnNumbers& sizes) {
    const Tensor y = between(sizes);
    product(a, b, y);
    return y;
  }
  void pointwise(const Pointwise& kind, Operands operands, Tensor y) {
    operations_.push_back({kind, operands, y});
  }
  Tensor pointwise(cudnnPointwiseMode_t function, Operands operands) {
    const Tensor y = between(tensors_[*operands.begin()].sizes);
    pointwise({function}, operands, y);
    return y;
  }
  void reduce(cudnnReduceTensorOp_t function, Tensor x, Tensor y) {
    operations_.push_back({Reduction{function}, {x}, y});
  }
  Tensor reduce(cudnnReduceTensorOp_t function, Tensor x, const CudnnNumbers& sizes) {
    const Tensor y = between(sizes);
    reduce(function, x, y);
    return y;
  }
  /// x as matrices that are transposed, in another dtype.
  Tensor transpose(Tensor x, cudnnDataType_t dtype) {
    CudnnNumbers sizes = tensors_[x].sizes, strides = tensors_[x].strides;
    std::swap(sizes[2], sizes[3]);
    std::swap(strides[2], strides[3]);
    const Tensor y = between(sizes, strides, dtype);
    operations_.push_back({Reordering{}, {x}, y});
    return y;
  }
  /// One of x, w and y is the result.
  void convolve(const Convolution& kind, Tensor x, Tensor w, Tensor y) {
    switch (kind.product) {
      case ConvolutionProduct::forward:
        return operations_.push_back({kind, {x, w}, y});
      case ConvolutionProduct::backward_input:
        return operations_.push_back({kind, {w, y}, x});
      case ConvolutionProduct::backward_weight:
        return operations_.push_back({kind, {x, y}, w});
    }
  }
  ///@}

  const std::vector<GraphTensor>& tensors() const { return tensors_; }
  const std::vector<GraphOperation>& operations() const { return operations_; }

 private:
  Tensor add(GraphTensor tensor) {
    tensors_.push_back(std::move(tensor));
    return tensors_.size() - 1;
  }
  /// Names that are no letter.
  std::int64_t next_id() const { return 1000 + static_cast<std::int64_t>(tensors_.size()); }

  std::vector<GraphTensor> tensors_;
  std::vector<GraphOperation> operations_;
};

/// The library's names of a convolution's operation and its attributes.
struct ConvolutionNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t first, second, result, steps, alpha, beta;
};

constexpr ConvolutionNames names_of(ConvolutionProduct product) {
  switch (product) {
    case ConvolutionProduct::backward_input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvolutionProduct::backward_weight:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
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

/// A graph as descriptors of the library.
class DescribedOperations {
 public:
  explicit DescribedOperations(const OperationGraph& graph) {
    for (const GraphTensor& tensor : graph.tensors()) tensors_.push_back(described(tensor));
    for (const GraphOperation& operation : graph.operations())
      operations_.push_back(
          std::visit([&](const auto& kind) { return described(kind, operation); }, operation.kind));
  }

  ///@{
  /// In the order of the graph's; a kind for each operation that has one.
  const std::vector<CudnnDescriptor>& tensors() const { return tensors_; }
  const std::vector<CudnnDescriptor>& kinds() const { return kinds_; }
  const std::vector<CudnnDescriptor>& operations() const { return operations_; }
  ///@}

 private:
  static CudnnDescriptor described(const GraphTensor& tensor) {
    CudnnDescriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, tensor.id);
    d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, tensor.dtype);
    d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, tensor.alignment);
    d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.sizes.data(), tensor.sizes.size());
    d.set(CUDNN_ATTR_TENSOR_STRIDES, tensor.strides.data(), tensor.strides.size());
    d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, !tensor.in_memory && !tensor.number);
    d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, tensor.number.has_value());
    d.finalize("cudnnBackendFinalize of a tensor");
    return d;
  }

  CudnnDescriptor described(MatrixProduct, const GraphOperation& operation) {
    CudnnDescriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    CudnnDescriptor d(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kept(std::move(kind)));
    return linked(std::move(d), operation,
                  {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
                  CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  }
  CudnnDescriptor described(const Pointwise& pointwise, const GraphOperation& operation) {
    CudnnDescriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, pointwise.function);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, pointwise.in);
    if (pointwise.axis >= 0) kind.set(CUDNN_ATTR_POINTWISE_AXIS, pointwise.axis);
    CudnnDescriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kept(std::move(kind)));
    return linked(std::move(d), operation,
                  {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                   CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
                  CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  }
  CudnnDescriptor described(Reduction reduction, const GraphOperation& operation) {
    CudnnDescriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, reduction.function);
    kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    CudnnDescriptor d(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kept(std::move(kind)));
    return linked(std::move(d), operation, {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
                  CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  }
  CudnnDescriptor described(Reordering, const GraphOperation& operation) {
    return linked(CudnnDescriptor(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR), operation,
                  {CUDNN_ATTR_OPERATION_RESHAPE_XDESC}, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  }

  CudnnDescriptor described(const Convolution& convolution, const GraphOperation& operation) {
    CudnnDescriptor kind(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const auto set = [&](cudnnBackendAttributeName_t name, const CudnnNumbers& numbers) {
      kind.set(name, numbers.data(), numbers.size());
    };
    kind.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
             static_cast<std::int64_t>(convolution.strides.size()));
    kind.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
             convolution.in_double ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
    kind.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, convolution.strides);
    set(CUDNN_ATTR_CONVOLUTION_DILATIONS, convolution.dilations);
    set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, convolution.before);
    set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, convolution.behind);
    const ConvolutionNames names = names_of(convolution.product);
    CudnnDescriptor d(names.type);
    d.set(names.steps, kept(std::move(kind)));
    const auto scale = [&](auto one, auto zero) {
      d.set(names.alpha, one);
      d.set(names.beta, convolution.write == Write::add ? one : zero);
    };
    convolution.in_double ? scale(1.0, 0.0) : scale(1.0F, 0.0F);
    return linked(std::move(d), operation, {names.first, names.second}, names.result);
  }

  /// `d` with its operands and its result.
  CudnnDescriptor linked(CudnnDescriptor d, const GraphOperation& operation,
                         std::initializer_list<cudnnBackendAttributeName_t> operands,
                         cudnnBackendAttributeName_t result) const {
    for (std::size_t i = 0; i < operation.operands.size(); ++i)
      d.set(operands.begin()[i], tensors_[operation.operands[i]]);
    d.set(result, tensors_[operation.result]);
    d.finalize("cudnnBackendFinalize of an operation");
    return d;
  }

  const CudnnDescriptor& kept(CudnnDescriptor kind) {
    kind.finalize("cudnnBackendFinalize of a kind of operation");
    return kinds_.emplace_back(std::move(kind));
  }

  std::vector<CudnnDescriptor> tensors_;
  std::vector<CudnnDescriptor> kinds_;
  std::vector<CudnnDescriptor> operations_;
};

}  // namespace shardwise::detail::cuda
