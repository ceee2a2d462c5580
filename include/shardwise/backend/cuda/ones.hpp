#pragma once
// A vector of ones: a product with it is a sum.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/device_memory.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

/// Ones on the device, for the work of one stream. It grows by doubling, and then waits for the
/// stream.
template <Real T>
class Ones {
 public:
  explicit Ones(DeviceMemory& memory) : memory_(memory) {}

  /// At least n ones.
  /// throws   backend_error if it must grow while the stream is captured into a graph
  const T* get(std::size_t n, cudaStream_t stream) {
    if (n > n_) grow(std::max(n, 2 * n_), stream);
    return data_;
  }

 private:
  void grow(std::size_t n, cudaStream_t stream) {
    require_no_capture(stream, "sums over more rows than before need memory");
    const std::vector<T> ones(n, static_cast<T>(1.0F));
    void* const data = memory_.reserve(n * sizeof(T));
    check(cudaMemcpyAsync(data, ones.data(), n * sizeof(T), cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // before `ones` is released
    data_ = static_cast<const T*>(data);
    n_ = n;
  }

  Scratch memory_;
  const T* data_ = nullptr;
  std::size_t n_ = 0;
};

}  // namespace shardwise::detail::cuda
