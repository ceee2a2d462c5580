#pragma once
// Copies from a device to the host through pinned memory, which the device writes directly.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/backend/detail/destroyer.hpp"

namespace shardwise::detail::cuda {

/// Two pieces of pinned memory, each as large as the largest copy so far, up to 2 MiB. The device
/// writes one of them while the host copies out of the other.
class Staging {
 public:
  /// Copies `bytes` from the device to `to` after all earlier work on the stream; waits for it.
  void read(const void* from, std::size_t bytes, void* to, const Stream& stream) {
    require_no_capture(stream.get(), "the host cannot wait for numbers",
                       "read them after the launch; a loss is a RecordedStep's");
    const auto begin_copy = [&](Piece& piece, std::size_t begin) {
      const std::size_t part = std::min(bytes - begin, most);
      piece.reserve(part);
      check(cudaMemcpyAsync(piece.memory.get(), static_cast<const std::byte*>(from) + begin, part,
                            cudaMemcpyDeviceToHost, stream.get()),
            "cudaMemcpyAsync");
      piece.written->record(stream.get());
    };
    auto& [now, next] = pieces_;
    if (bytes > 0) begin_copy(now, 0);
    for (std::size_t done = 0; done < bytes; done += most) {
      const bool is_last = bytes - done <= most;
      if (!is_last) begin_copy(next, done + most);
      now.written->synchronize();
      std::memcpy(static_cast<std::byte*>(to) + done, now.memory.get(),
                  std::min(bytes - done, most));
      if (!is_last) std::swap(now, next);
    }
  }

 private:
  static constexpr std::size_t most = std::size_t{2} << 20;

  struct Piece {
    void reserve(std::size_t size) {
      if (!written) written.emplace(Event::Use::order);
      if (size <= bytes) return;
      void* larger = nullptr;
      check(cudaMallocHost(&larger, size), "cudaMallocHost", size);
      memory.reset(larger);
      bytes = size;
    }

    std::unique_ptr<void, Destroyer<cudaFreeHost>> memory;
    std::size_t bytes = 0;
    std::optional<Event> written;  ///< behind the last copy into this piece
  };

  std::array<Piece, 2> pieces_;
};

}  // namespace shardwise::detail::cuda
