#pragma once
// Memory that is taken and given back many times in a step, and asked of the system only once.

#include <array>
#include <bit>
#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "shardwise/core/error.hpp"

namespace shardwise {

class Pool;

/// A share in a block of a pool, aligned to 64 bytes. Copies share the block; with the last one it
/// goes back to the pool, which must still be there. For one thread.
class Buffer {
 public:
  Buffer() = default;
  /// Another share in the same block.
  Buffer(const Buffer& other) noexcept : block_(other.block_) {
    if (block_ != nullptr) ++block_->shares;
  }
  /// Takes over the share of `other`, which is then as one that was made by default.
  Buffer(Buffer&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  ///@{
  /// Gives up this share, and takes the one of `other`. Two operators and not one that takes a
  /// Buffer: clang 14 never destroys the argument of `buffer = {}` in a template.
  Buffer& operator=(const Buffer& other) noexcept { return *this = Buffer(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    release();
    block_ = std::exchange(other.block_, nullptr);
    return *this;
  }
  ///@}
  ~Buffer() { release(); }

  /// Null for a default-made buffer.
  void* data() const noexcept { return block_ == nullptr ? nullptr : block_->bytes(); }

  /// Whether nobody else holds a share, so that writing disturbs nobody.
  bool unique() const noexcept { return block_ != nullptr && block_->shares == 1; }

 private:
  friend class Pool;

  struct alignas(64) Block {
    Pool* owner;
    std::size_t size_class;
    std::size_t shares;
    Block* next;
    void* bytes() noexcept { return this + 1; }
  };

  explicit Buffer(Block* block) noexcept : block_(block) {}
  inline void release() noexcept;

  Block* block_ = nullptr;
};

/// Blocks for one thread, kept by size. A block is only used again for sizes of its own class (four
/// classes for each doubling), so a program that repeats its requests allocates nothing from the
/// second time on, in whatever order blocks come back.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    for (Buffer::Block* block : free_) {
      while (block != nullptr) {
        Buffer::Block* next = block->next;
        ::operator delete (block, std::align_val_t{64});
        block = next;
      }
    }
  }

  /// A buffer of at least `bytes` bytes of any content. Throws memory_error if there are none.
  Buffer take(std::size_t bytes) {
    const SizeClass size = size_class(bytes);
    Buffer::Block* block = size.number < free_.size() ? free_[size.number] : nullptr;
    if (block != nullptr) {
      free_[size.number] = block->next;
    } else {
      block = allocate(size, bytes);
    }
    block->shares = 1;
    return Buffer(block);
  }

  /// Bytes asked of the system so far.
  std::size_t reserved() const noexcept { return reserved_; }

 private:
  friend class Buffer;

  struct SizeClass {
    std::size_t number;
    std::size_t bytes;
  };

  static constexpr std::size_t smallest_shift = 6;

  /// Rounds up to 4, 5, 6 or 7 quarters of a power of two, at least 64 bytes.
  static constexpr SizeClass size_class(std::size_t bytes) {
    if (bytes <= (std::size_t{1} << smallest_shift)) return {0, std::size_t{1} << smallest_shift};
    const auto shift = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;
    const std::size_t quarter = std::size_t{1} << (shift - 2);
    const std::size_t quarters = (bytes - 1) / quarter + 1;  // 5 to 8
    return {(shift - smallest_shift) * 4 + quarters - 4, quarters * quarter};
  }

  Buffer::Block* allocate(const SizeClass& size, std::size_t asked) {
    void* memory = nullptr;
    if (size.bytes >= asked && size.number < free_.size()) {
      memory =
          ::operator new (sizeof(Buffer::Block) + size.bytes, std::align_val_t{64}, std::nothrow);
    }
    if (memory == nullptr) {
      throw memory_error("no memory for " + std::to_string(asked) + " bytes; this rank holds " +
                         std::to_string(reserved_) +
                         " bytes in its pool. Use more ranks or a smaller batch");
    }
    reserved_ += size.bytes;
    return new (memory) Buffer::Block{this, size.number, 0, nullptr};
  }

  void put_back(Buffer::Block* block) noexcept {
    block->next = free_[block->size_class];
    free_[block->size_class] = block;
  }

  std::array<Buffer::Block*, 160> free_{};  // up to 2^46 bytes
  std::size_t reserved_ = 0;
};

inline void Buffer::release() noexcept {
  if (block_ != nullptr && --block_->shares == 0) block_->owner->put_back(block_);
}

}  // namespace shardwise
