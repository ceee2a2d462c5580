#pragma once
// Memory for scratch and packed weights.

#include <cstddef>
#include <new>
#include <string>

#include "shardwise/core/error.hpp"

namespace shardwise::detail::onednn {

/// Bytes at a 64-byte boundary, the length of a cache line and of the widest vector. It only ever
/// grows, and growing does not keep the contents.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { release(); }

  /// At least `bytes` bytes; null if none were ever asked for. Throws memory_error.
  void* reserve(std::size_t bytes) {
    if (bytes > size_) {
      release();
      data_ = ::operator new(bytes, alignment, std::nothrow);
      if (data_ == nullptr)
        throw memory_error("oneDNN backend: no memory for " + std::to_string(bytes) +
                           " bytes of scratch or packed weights; use smaller layers or more ranks");
      size_ = bytes;
    }
    return data_;
  }

 private:
  static constexpr std::align_val_t alignment{64};

  void release() {
    ::operator delete(data_, alignment);
    data_ = nullptr;
    size_ = 0;
  }

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace shardwise::detail::onednn
