#pragma once
// What a graph for cuDNN computes, by its documentation: plain loops in double over all elements.

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <variant>
#include <vector>

#include "shardwise/backend/cuda/cudnn_operations.hpp"
#include "shardwise/core/dtype.hpp"

namespace cuda_test {

class InterpretedGraph {
  using Graph = shardwise::detail::cuda::OperationGraph;
  using Tensor = shardwise::detail::cuda::GraphTensor;
  using Operation = shardwise::detail::cuda::GraphOperation;
  using Index = std::array<std::int64_t, 4>;

 public:
  /// `memory` are the tensors in memory by their names.
  InterpretedGraph(const Graph& graph, const std::map<std::int64_t, void*>& memory)
      : graph_(&graph), memory_(&memory), values_(graph.tensors().size()) {
    for (std::size_t t = 0; t < values_.size(); ++t) {
      values_[t].resize(static_cast<std::size_t>(count(tensor(t))));
      if (tensor(t).number) values_[t][0] = double{*tensor(t).number};
      if (tensor(t).in_memory) for_each_index(t, [&](const Index& i) { at(t, i) = read(t, i); });
    }
  }

  void run() {
    for (const Operation& operation : graph_->operations()) {
      std::visit([&](const auto& kind) { compute(kind, operation); }, operation.kind);
      if (!tensor(operation.result).in_memory) continue;
      for_each_index(operation.result, [&](const Index& i) { write(operation.result, i); });
    }
  }

 private:
  const Tensor& tensor(std::size_t t) const { return graph_->tensors()[t]; }
  static std::int64_t count(const Tensor& t) {
    return t.sizes[0] * t.sizes[1] * t.sizes[2] * t.sizes[3];
  }

  template <class F>
  void for_each_index(std::size_t t, F f) const {
    const auto& n = tensor(t).sizes;
    for (std::int64_t a = 0; a < n[0]; ++a)
      for (std::int64_t b = 0; b < n[1]; ++b)
        for (std::int64_t c = 0; c < n[2]; ++c)
          for (std::int64_t d = 0; d < n[3]; ++d) f(Index{a, b, c, d});
  }

  /// The element of a tensor; axes of one element repeat it.
  double& at(std::size_t t, const Index& i) {
    std::size_t offset = 0;
    for (std::size_t axis = 0; axis < i.size(); ++axis) {
      const std::int64_t size = tensor(t).sizes[axis];
      offset = offset * static_cast<std::size_t>(size) +
               static_cast<std::size_t>(size == 1 ? 0 : i[axis]);
    }
    return values_[t].at(offset);
  }

  static std::size_t place_of(const Tensor& t, const Index& i) {
    std::int64_t place = 0;
    for (std::size_t axis = 0; axis < i.size(); ++axis) place += i[axis] * t.strides[axis];
    return static_cast<std::size_t>(place);
  }
  /// Calls f with a pointer of the type of a tensor to its element in memory.
  template <class F>
  auto in_memory(std::size_t t, const Index& i, F f) const {
    const std::size_t place = place_of(tensor(t), i);
    void* const data = memory_->at(tensor(t).id);
    switch (tensor(t).dtype) {
      case CUDNN_DATA_BFLOAT16:
        return f(static_cast<shardwise::bf16*>(data) + place);
      case CUDNN_DATA_HALF:
        return f(static_cast<shardwise::fp16*>(data) + place);
      case CUDNN_DATA_DOUBLE:
        return f(static_cast<double*>(data) + place);
      default:
        return f(static_cast<float*>(data) + place);
    }
  }
  double read(std::size_t t, const Index& i) const {
    return in_memory(t, i, [](auto* p) {
      return static_cast<double>(
          static_cast<shardwise::accumulate_t<std::decay_t<decltype(*p)>>>(*p));
    });
  }
  void write(std::size_t t, const Index& i) {
    const double value = at(t, i);
    in_memory(t, i, [&](auto* p) {
      using T = std::decay_t<decltype(*p)>;
      *p = static_cast<T>(static_cast<shardwise::accumulate_t<T>>(value));
    });
  }

  void compute(shardwise::detail::cuda::MatrixProduct, const Operation& o) {
    const std::size_t a = o.operands[0], b = o.operands[1];
    const std::int64_t readers = tensor(a).sizes[1] / tensor(b).sizes[1];
    for_each_index(o.result, [&](const Index& i) {
      double sum = 0;
      for (std::int64_t k = 0; k < tensor(a).sizes[3]; ++k)
        sum += at(a, {i[0], i[1], i[2], k}) * at(b, {i[0], i[1] / readers, k, i[3]});
      at(o.result, i) = sum;
    });
  }

  void compute(const shardwise::detail::cuda::Pointwise& kind, const Operation& o) {
    for_each_index(o.result, [&](const Index& i) {
      std::array<double, 3> x{};
      for (std::size_t k = 0; k < o.operands.size(); ++k) x[k] = at(o.operands[k], i);
      at(o.result, i) = kind.function == CUDNN_POINTWISE_GEN_INDEX
                            ? static_cast<double>(i[static_cast<std::size_t>(kind.axis)])
                            : value_of(kind.function, x);
    });
  }
  static double value_of(cudnnPointwiseMode_t function, const std::array<double, 3>& x) {
    switch (function) {
      case CUDNN_POINTWISE_ADD:
        return x[0] + x[1];
      case CUDNN_POINTWISE_SUB:
        return x[0] - x[1];
      case CUDNN_POINTWISE_MUL:
        return x[0] * x[1];
      case CUDNN_POINTWISE_DIV:
        return x[0] / x[1];
      case CUDNN_POINTWISE_EXP:
        return std::exp(x[0]);
      case CUDNN_POINTWISE_LOG:
        return std::log(x[0]);
      case CUDNN_POINTWISE_CMP_GE:
        return x[0] >= x[1] ? 1 : 0;
      case CUDNN_POINTWISE_CMP_GT:
        return x[0] > x[1] ? 1 : 0;
      case CUDNN_POINTWISE_BINARY_SELECT:
        return x[2] != 0 ? x[0] : x[1];
      default:
        return std::numeric_limits<double>::quiet_NaN();
    }
  }

  void compute(shardwise::detail::cuda::Reduction kind, const Operation& o) {
    const bool adds = kind.function == CUDNN_REDUCE_TENSOR_ADD;
    auto& sums = values_[o.result];
    std::fill(sums.begin(), sums.end(), adds ? 0 : -std::numeric_limits<double>::infinity());
    const std::size_t x = o.operands[0];
    for_each_index(x, [&](const Index& i) {
      Index to = i;
      for (std::size_t axis = 0; axis < i.size(); ++axis)
        to[axis] /= tensor(x).sizes[axis] / tensor(o.result).sizes[axis];
      double& sum = at(o.result, to);
      sum = adds ? sum + at(x, i) : std::max(sum, at(x, i));
    });
  }

  void compute(shardwise::detail::cuda::Reordering, const Operation& o) {
    const std::size_t x = o.operands[0];
    std::map<std::size_t, double> elements;
    for_each_index(x, [&](const Index& i) { elements[place_of(tensor(x), i)] = at(x, i); });
    for_each_index(o.result, [&](const Index& i) {
      at(o.result, i) = elements.at(place_of(tensor(o.result), i));
    });
  }

  void compute(const shardwise::detail::cuda::Convolution&, const Operation&) {
    throw std::logic_error("no test interprets a convolution");
  }

  const Graph* graph_;
  const std::map<std::int64_t, void*>* memory_;
  std::vector<std::vector<double>> values_;
};

}  // namespace cuda_test
