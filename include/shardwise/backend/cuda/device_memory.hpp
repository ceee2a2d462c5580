#pragma once
// Memory of a device: its source, one piece of it, and scratch memory that grows.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/cuda/options.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"

namespace shardwise::detail::cuda {

/// Memory of one device, aligned to 256 bytes, for the work of one stream: by cudaMalloc and
/// cudaFree, or by the caller's functions.
class DeviceMemory final : public MemorySource {
 public:
  /// throws   argument_error if only one of the caller's functions is given
  DeviceMemory(const CudaOptions& options, cudaStream_t stream)
      : device_(options.device),
        stream_(stream),
        allocate_(options.allocate),
        release_(options.release) {
    if ((allocate_ == nullptr) != (release_ == nullptr))
      throw argument_error(
          "Cuda: of CudaOptions::allocate and CudaOptions::release one is missing; give both, or "
          "none");
  }

  ///@{
  /// As `MemorySource` says; throws backend_error if the device fails.
  void* allocate(std::size_t bytes) override {
    const OnDevice on(device_);
    if (allocate_ != nullptr) return allocate_(bytes);
    void* memory = nullptr;
    const cudaError_t code = cudaMalloc(&memory, bytes);
    if (code != cudaErrorMemoryAllocation) {
      check(code, "cudaMalloc");
      return memory;
    }
    cudaGetLastError();  // clears the error, so that no later call reports it
    return nullptr;
  }

  /// Waits for the stream, whose work may still use the memory.
  void release(void* memory) noexcept override {
    if (cudaStreamSynchronize(stream_) != cudaSuccess) cudaGetLastError();
    if (release_ != nullptr)
      release_(memory);
    else if (cudaFree(memory) != cudaSuccess)
      cudaGetLastError();
  }

  std::string state() const override {
    const OnDevice on(device_);
    return " (" + free_memory() + ')';
  }
  ///@}

 private:
  int device_;
  cudaStream_t stream_;
  std::function<void*(std::size_t)> allocate_;
  std::function<void(void*)> release_;
};

/// One piece of device memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Uninitialised. Throws memory_error if there is none.
  DeviceBuffer(DeviceMemory& memory, std::size_t bytes)
      : memory_(&memory), data_(memory.allocate(bytes)), bytes_(bytes) {
    if (data_ == nullptr) refuse_memory("Cuda", "an allocation", "no memory", bytes);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : memory_(other.memory_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) memory_->release(data_);
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  DeviceMemory* memory_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Scratch memory that the calls on one stream use one after another. Outgrown pieces stay until
/// the end, since pending work or a captured graph may still use them. Each new piece is at least
/// twice as large, so together they are smaller than the current one.
class Scratch {
 public:
  explicit Scratch(DeviceMemory& memory) : memory_(&memory) {}

  /// At least `bytes` uninitialised bytes; valid until the next call of this.
  void* reserve(std::size_t bytes) {
    const std::size_t held = pieces_.empty() ? 0 : pieces_.back().bytes();
    if (bytes > held) pieces_.emplace_back(*memory_, std::max(bytes, 2 * held));
    return pieces_.empty() ? nullptr : pieces_.back().data();
  }

 private:
  DeviceMemory* memory_;
  std::vector<DeviceBuffer> pieces_;  ///< the last one is in use
};

}  // namespace shardwise::detail::cuda
