#pragma once
// Memory for scratch and packed weights.

#include <cstddef>
#include <memory>
#include <new>

#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"

namespace shardwise::detail::onednn {

/// Memory at a 64-byte boundary, the size of a cache line and of the widest vector. It only grows,
/// and then loses its contents.
class Scratch {
 public:
  /// At least `bytes` bytes; null if all requests were for 0 bytes. Throws memory_error.
  void* reserve(std::size_t bytes) {
    if (bytes > size_) {
      size_ = 0;
      data_.reset();
      data_.reset(::operator new(bytes, alignment, std::nothrow));
      if (!data_)
        throw memory_error(
            {"oneDNN backend: no memory for ", bytes,
             " bytes of scratch or packed weights; use smaller layers or more ranks"});
      ask_for_huge_pages(data_.get(), bytes);
      size_ = bytes;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t alignment{64};

  struct Release {
    void operator()(void* data) const noexcept { ::operator delete(data, alignment); }
  };

  std::unique_ptr<void, Release> data_;
  std::size_t size_ = 0;
};

}  // namespace shardwise::detail::onednn
