#pragma once
// The GPU engine. Needs a CUDA toolkit from version 12 on and cuDNN 9; link cudart, cublasLt and,
// for convolutions and attention, cudnn.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/cublaslt_linear.hpp"
#include "shardwise/backend/cuda/cudnn_attention.hpp"
#include "shardwise/backend/cuda/cudnn_convolution.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/cuda/graph.hpp"
#include "shardwise/backend/cuda/launch.hpp"
#include "shardwise/backend/cuda/options.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/backend/detail/pooling_elements.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise {

/// One device, with one stream for all work of the object: calls return before their work is done.
/// All tensors are on the device. cuBLASLt computes the products and cuDNN the convolutions, in
/// every dtype, and cuDNN the attention in bf16 and fp16; bf16 needs compute capability 8.0.
///
/// An object and its kernels are for one thread at a time; it must outlive its kernels.
class Cuda {
 public:
  /// The products of one linear layer; see Backend for shapes.
  template <Real T>
  using Linear = detail::cuda::CublasLtLinear<Cuda, T>;

  ///@{
  /// The kernels of convolutions and of pooling, as `ConvolutionBackend` and `PoolingBackend` say.
  template <Real T>
  using Convolution = detail::cuda::CudnnConvolution<Cuda, T>;

  template <Real T>
  using MaxPooling = detail::MaxPoolingElements<T, Cuda>;

  template <Real T>
  using AveragePooling = detail::AveragePoolingElements<T, Cuda>;
  ///@}

  /// The kernel of attention in bf16 and fp16, as `AttentionBackend` says: cuDNN's, and plain loops
  /// where cuDNN has none. In float and double attention runs by plain loops.
  template <detail::cuda::TwoByteReal T>
  using Attention = detail::cuda::CudnnAttention<Cuda, T>;

  /// throws   backend_error if there is no device or it does not support the options,
  ///          argument_error if they name a device that does not exist, or contradict each other,
  ///          memory_error
  explicit Cuda(const CudaOptions& options = {}) : session_(options) {}

  /// The chosen device.
  const CudaDevice& device() const { return session_.device(); }

  /// The stream of all work; the caller's work on it is ordered with it.
  cudaStream_t stream() { return session_.stream().get(); }

  /// Waits until all work is done. Throws backend_error if any of it failed.
  void synchronize() { session_.stream().synchronize(); }

  /// The device's memory.
  MemorySource& memory() { return session_.memory(); }

  /// Whether kernels may read and write this memory.
  /// throws  backend_error
  bool reaches(const void* from) const { return detail::cuda::reaches(device(), from); }

  /// Copies n elements from the device to the host; they are there when it returns.
  template <class T>
  void to_host(const T* from, std::size_t n, T* to) {
    const detail::cuda::OnDevice on(device().index);
    session_.staging().read(from, n * sizeof(T), to, session_.stream());
  }

  /// Copies n elements of the host to the device; the host may change them when it returns.
  template <class T>
  void to_device(const T* from, std::size_t n, T* to) {
    const detail::cuda::OnDevice on(device().index);
    detail::cuda::require_no_capture(stream(), "the host's numbers cannot be copied",
                                     "copy them before the capture, or before the launch");
    detail::cuda::check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyHostToDevice, stream()),
                        "cudaMemcpyAsync");
    synchronize();  // pinned memory is read later
  }

  /// Calls f(i) for every i in [0, n), see DeviceBackend: a kernel, so only nvcc compiles it.
  template <class F>
  void for_each(std::size_t n, const F& f) {
    detail::cuda::launch_each(session_, n, f);
  }

  /// put(r, the combined terms of row r) for every r < rows, see DeviceBackend. One kernel or two.
  template <class A, class Terms, class Combine, class Put>
  void reduce_each(std::size_t rows, std::size_t n, Adjacent adjacent, A first, const Terms& terms,
                   const Combine& combine, const Put& put) {
    detail::cuda::launch_reduce_each(session_, rows, n, adjacent, first, terms, combine, put);
  }

  /// An event in the work of this object, see OrderedBackend.
  class Event {
   public:
    /// Not recorded yet: a wait for it returns at once.
    explicit Event(Cuda& backend)
        : device_(backend.device().index), stream_(backend.stream()), event_(made_on(device_)) {}
    /// Records it after all work of the backend so far.
    /// throws  backend_error while the stream is captured: ranks that share memory meet on the host
    void record() {
      detail::cuda::require_no_capture(stream_, "ranks that share a device cannot meet",
                                       "capture the work of one rank, or of ranks over NCCL");
      event_.record(stream_);
    }

   private:
    friend class Cuda;

    static detail::cuda::Event made_on(int device) {
      const detail::cuda::OnDevice on(device);
      return detail::cuda::Event(detail::cuda::Event::Use::order);
    }

    int device_;
    cudaStream_t stream_;
    detail::cuda::Event event_;
  };

  /// Later work of this object begins after the event.
  void wait_for(const Event& event) { session_.stream().wait_for(event.event_); }

  /// Allows its kernels to access memory of the event's device that cudaMalloc allocated; your own
  /// memory pool must allow this, see cudaMemPoolSetAccess.
  /// throws   backend_error if this device has no access to that one
  void enable_peer_access(const Event& event) {
    detail::cuda::enable_peer_access(device(), event.device_);
  }

  /// Its calls as a CUDA graph, see RecordingBackend.
  using Recording = CudaGraph;

  /// The state that its kernels share.
  detail::cuda::Session& session() { return session_; }

 private:
  detail::cuda::Session session_;
};

}  // namespace shardwise
