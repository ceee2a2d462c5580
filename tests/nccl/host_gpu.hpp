#pragma once
// A device for models over NCCL: what it is called for are loops of the host, on a stream of the
// stand-in.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "nccl/ranks.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/cuda/graph.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/backend/recording.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "support/enqueued_kernel.hpp"

namespace testing {

class HostGpu {
 public:
  template <shardwise::Real T>
  using Linear = EnqueuedKernel<shardwise::Reference::Linear<T>, HostGpu>;
  using Recording = shardwise::CudaGraph;

  explicit HostGpu(cudaStream_t stream) : stream_(stream) {}
  HostGpu(const HostGpu&) = delete;
  HostGpu& operator=(const HostGpu&) = delete;
  ~HostGpu() { cudaStreamSynchronize(stream_); }

  cudaStream_t stream() const { return stream_; }
  shardwise::CudaDevice device() const { return {}; }
  shardwise::Reference& host() { return host_; }
  shardwise::MemorySource& memory() { return memory_; }
  bool reaches(const void*) const { return true; }

  template <class Call>
  void enqueue(Call call) {
    work_.put(stream_, std::move(call));
  }

  template <class F>
  void for_each(std::size_t n, F f) {
    enqueue([this, n, f] { host_.for_each(n, f); });
  }

  template <class A, class Terms, class Combine, class Put>
  void reduce_each(std::size_t rows, std::size_t n, shardwise::Adjacent, A first, Terms terms,
                   Combine combine, Put put) {
    enqueue([=] {
      for (std::size_t r = 0; r < rows; ++r)
        put(r, shardwise::detail::lane_reduce(n, first, terms(r), combine));
    });
  }

  template <class T>
  void to_host(const T* from, std::size_t n, T* to) {
    copy(from, n, to);
  }
  template <class T>
  void to_device(const T* from, std::size_t n, T* to) {
    copy(from, n, to);
  }

 private:
  struct Memory final : shardwise::MemorySource {
    void* allocate(std::size_t bytes) override {
      void* memory = nullptr;
      return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
    }
    void release(void* memory) noexcept override { cudaFree(memory); }
  };

  template <class T>
  void copy(const T* from, std::size_t n, T* to) {
    shardwise::detail::cuda::require_no_capture(stream_, "the host cannot wait for a copy");
    cudaStreamSynchronize(stream_);
    std::copy_n(from, n, to);
  }

  cudaStream_t stream_;
  shardwise::Reference host_;
  Memory memory_;
  HostWork work_;
};

static_assert(shardwise::RecordingBackend<HostGpu> && shardwise::Backend<HostGpu, float>);

}  // namespace testing
