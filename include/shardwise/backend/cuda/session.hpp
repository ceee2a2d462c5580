#pragma once
// The state that all kernels of one backend object share.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/cublaslt_handle.hpp"
#include "shardwise/backend/cuda/cudnn_descriptor.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/cuda/device_memory.hpp"
#include "shardwise/backend/cuda/ones.hpp"
#include "shardwise/backend/cuda/options.hpp"
#include "shardwise/backend/cuda/staging.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

/// The device of one rank, its stream, cuBLASLt's handle, and memory. For one thread at a time:
/// calls are enqueued on the stream one after another, so they can share scratch memory.
class Session {
 public:
  /// throws   backend_error if there is no device or it does not support the options,
  ///          argument_error if they name a device that does not exist, or contradict each other
  explicit Session(const CudaOptions& options)
      : options_(options),
        device_(choose_device(options.device)),
        convolution_workspace_bytes_(convolution_workspace_of(options, device_)),
        stream_(options.device, options.stream),
        memory_(options, stream_.get()),
        cublaslt_(options.device, options.cublaslt),
        scratch_(memory_),
        ones_{Ones<float>(memory_), Ones<double>(memory_), Ones<bf16>(memory_),
              Ones<fp16>(memory_)} {
    if (options.tf32) require_tf32(device_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// Waits, since pending work may use the memory; ignores its errors.
  ~Session() {
    if (cudaStreamSynchronize(stream_.get()) != cudaSuccess) cudaGetLastError();
  }

  const CudaOptions& options() const { return options_; }
  const CudaDevice& device() const { return device_; }
  /// The most workspace of an engine of a convolution or an attention.
  std::size_t convolution_workspace_bytes() const { return convolution_workspace_bytes_; }
  DeviceMemory& memory() { return memory_; }
  Stream& stream() { return stream_; }
  cublasLtHandle_t cublaslt() const { return cublaslt_.get(); }

  /// Made at its first use: not every model has convolutions.
  cudnnHandle_t cudnn() {
    if (!cudnn_) cudnn_.emplace(device_.index, stream_.get());
    return cudnn_->get();
  }

  /// Memory for the next call on the stream, see Scratch.
  void* scratch(std::size_t bytes) { return scratch_.reserve(bytes); }

  template <Real T>
  Ones<T>& ones() {
    return std::get<Ones<T>>(ones_);
  }

  /// The plans of attentions, made at their first use: a program without attention need not link
  /// cuDNN. All calls name the same type.
  template <class Plans>
  Plans& attention_plans() {
    if (!attention_plans_) attention_plans_ = std::make_shared<Plans>();
    return *static_cast<Plans*>(attention_plans_.get());
  }

  /// For numbers that are copied to the host.
  Staging& staging() { return staging_; }

 private:
  CudaOptions options_;
  CudaDevice device_;
  std::size_t convolution_workspace_bytes_;
  Stream stream_;
  DeviceMemory memory_;
  CublasLtHandle cublaslt_;
  std::optional<CudnnHandle> cudnn_;
  Scratch scratch_;
  std::tuple<Ones<float>, Ones<double>, Ones<bf16>, Ones<fp16>> ones_;
  Staging staging_;
  std::shared_ptr<void> attention_plans_;
};

/// values[i] = 0, on the session's stream.
template <class T>
void clear(Session& session, T* values, std::size_t n) {
  if (n == 0) return;
  check(cudaMemsetAsync(values, 0, n * sizeof(T), session.stream().get()), "cudaMemsetAsync");
}

}  // namespace shardwise::detail::cuda
