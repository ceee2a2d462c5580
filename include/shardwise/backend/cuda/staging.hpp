#pragma once
// Copies from a device to the host through pinned memory, which the device writes directly.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/backend/detail/destroyer.hpp"

namespace shardwise::detail::cuda {

/// A piece of pinned memory, as large as the largest copy so far, up to 4 MiB.
class Staging {
 public:
  /// Copies `bytes` from the device to `to` after all earlier work on the stream; waits for it.
  void read(const void* from, std::size_t bytes, void* to, const Stream& stream) {
    require_no_capture(stream.get(), "the host cannot wait for numbers",
                       "read them after the launch; a loss is a RecordedStep's");
    reserve(std::min(bytes, most));
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t part = std::min(bytes - done, bytes_);
      check(cudaMemcpyAsync(memory_.get(), static_cast<const std::byte*>(from) + done, part,
                            cudaMemcpyDeviceToHost, stream.get()),
            "cudaMemcpyAsync");
      stream.synchronize();
      std::memcpy(static_cast<std::byte*>(to) + done, memory_.get(), part);
      done += part;
    }
  }

 private:
  static constexpr std::size_t most = std::size_t{4} << 20;

  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    void* memory = nullptr;
    check(cudaMallocHost(&memory, bytes), "cudaMallocHost", bytes);
    memory_.reset(memory);
    bytes_ = bytes;
  }

  std::unique_ptr<void, Destroyer<cudaFreeHost>> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace shardwise::detail::cuda
