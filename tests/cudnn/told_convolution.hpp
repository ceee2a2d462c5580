#pragma once
// What cuDNN was told of a convolution, asked back from its descriptors.

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/backend/cuda/cudnn_convolution_graph.hpp"
#include "shardwise/backend/cuda/cudnn_descriptor.hpp"
#include "shardwise/backend/cuda/cudnn_operations.hpp"

namespace cudnn_test {

using shardwise::detail::cuda::ConvolutionNames;
using shardwise::detail::cuda::ConvolutionProblem;
using shardwise::detail::cuda::CudnnDescriptor;
using shardwise::detail::cuda::DescribedOperations;
using Numbers = shardwise::detail::cuda::CudnnNumbers;

template <class Value>
Value number_of(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name) {
  Value value{};
  descriptor.read(name, &value, 1);
  return value;
}

inline Numbers numbers_of(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name) {
  Numbers values(8);
  values.resize(descriptor.read(name, values.data(), values.size()));
  return values;
}

/// All of a tensor but its alignment, which the library does not say.
struct ToldTensor {
  explicit ToldTensor(const CudnnDescriptor& d)
      : id(number_of<std::int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        dtype(number_of<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE)),
        sizes(numbers_of(d, CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(numbers_of(d, CUDNN_ATTR_TENSOR_STRIDES)) {}

  std::int64_t id;
  cudnnDataType_t dtype;
  Numbers sizes, strides;
};

/// Elements of y, x and w in memory that are one product of the sums.
using OneProduct = std::array<std::int64_t, 3>;

/// An operation with what it is described by. (The library does not name the parts of one.)
struct ToldConvolution {
  explicit ToldConvolution(const ConvolutionProblem& problem)
      : ToldConvolution(DescribedOperations(convolution_graph(problem)),
                        shardwise::detail::cuda::names_of(problem.product)) {}
  ToldConvolution(const DescribedOperations& told, const ConvolutionNames& names)
      : x(told.tensors()[0]),
        w(told.tensors()[1]),
        y(told.tensors()[2]),
        stride(numbers_of(told.kinds()[0], CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)),
        dilation(numbers_of(told.kinds()[0], CUDNN_ATTR_CONVOLUTION_DILATIONS)),
        before(numbers_of(told.kinds()[0], CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)),
        sums(number_of<cudnnDataType_t>(told.kinds()[0], CUDNN_ATTR_CONVOLUTION_COMP_TYPE)),
        alpha(scale_of(told.operations()[0], names.alpha)),
        beta(scale_of(told.operations()[0], names.beta)) {}

  double scale_of(const CudnnDescriptor& operation, cudnnBackendAttributeName_t name) const {
    if (sums == CUDNN_DATA_DOUBLE) return number_of<double>(operation, name);
    return double{number_of<float>(operation, name)};
  }

  /// As the library's documentation says which they are.
  std::vector<OneProduct> products() const {
    const std::int64_t outputs_of_group = w.sizes[0] / (x.sizes[1] / w.sizes[1]);
    std::int64_t plane = 1, taps = 1;
    for (std::size_t k = 2; k < x.sizes.size(); ++k) plane *= y.sizes[k], taps *= w.sizes[k];
    std::vector<OneProduct> all;
    for (std::int64_t p = 0; p < plane; ++p)
      for (std::int64_t t = 0; t < taps; ++t) {
        OneProduct first{};
        std::int64_t rest_p = p, rest_t = t;
        bool is_inside = true;
        for (std::size_t k = x.sizes.size(); k-- > 2;) {
          const std::int64_t output = rest_p % y.sizes[k], tap = rest_t % w.sizes[k];
          const std::int64_t input = output * stride[k - 2] + tap * dilation[k - 2] - before[k - 2];
          rest_p /= y.sizes[k], rest_t /= w.sizes[k];
          is_inside = is_inside && input >= 0 && input < x.sizes[k];
          first[0] += output * y.strides[k];
          first[1] += input * x.strides[k];
          first[2] += tap * w.strides[k];
        }
        if (!is_inside) continue;
        for (std::int64_t n = 0; n < x.sizes[0]; ++n)
          for (std::int64_t o = 0; o < w.sizes[0]; ++o)
            for (std::int64_t i = 0; i < w.sizes[1]; ++i) {
              const std::int64_t input = o / outputs_of_group * w.sizes[1] + i;
              all.push_back({first[0] + n * y.strides[0] + o * y.strides[1],
                             first[1] + n * x.strides[0] + input * x.strides[1],
                             first[2] + o * w.strides[0] + i * w.strides[1]});
            }
      }
    return all;
  }

  ToldTensor x, w, y;
  Numbers stride, dilation, before;
  cudnnDataType_t sums;
  double alpha, beta;
};

}  // namespace cudnn_test
