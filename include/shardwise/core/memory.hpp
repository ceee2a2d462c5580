#pragma once
// Memory that is lent and returned many times per step, but allocated only once.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

class Pool;

/// The source of a pool's blocks: memory of the host, or of a device.
class MemorySource {
 public:
  MemorySource() = default;
  MemorySource(const MemorySource&) = delete;
  MemorySource& operator=(const MemorySource&) = delete;
  virtual ~MemorySource() = default;

  /// At least `bytes` bytes, aligned to 64; null if the allocation fails.
  virtual void* allocate(std::size_t bytes) = 0;
  /// Frees a block of `allocate`.
  virtual void release(void* memory) noexcept = 0;
  /// Text for an error about the available memory, " (GPU 0 has 3 of 80 GB free)"; may be empty.
  virtual std::string state() const { return {}; }
};

namespace detail {

/// The memory of `operator new`.
class HostMemory final : public MemorySource {
 public:
  ///@{
  /// As `MemorySource` says.
  void* allocate(std::size_t bytes) override {
    return ::operator new (bytes, std::align_val_t{64}, std::nothrow);
  }
  void release(void* memory) noexcept override { ::operator delete (memory, std::align_val_t{64}); }
  ///@}
};

}  // namespace detail

/// The memory of the host: that of `operator new`, aligned to 64 bytes.
detail::HostMemory& host_memory();

namespace detail {

/// Asks Linux for huge pages, with which large memory is read in less time: for those that lie
/// whole in this memory, which is of the host. A page is held as soon as one byte of it is used, so
/// ask for memory that will be used whole. It is advice, so nothing fails.
void ask_for_huge_pages(void* memory, std::size_t bytes) noexcept;

}  // namespace detail

/// A share in a block of a pool, aligned to 64 bytes. Copies share the block. The last one returns
/// it to the pool, which must outlive it. For one thread.
class Buffer {
 public:
  Buffer() = default;
  /// Another share in the same block.
  Buffer(const Buffer& other) noexcept : block_(other.block_) {
    if (block_ != nullptr) ++block_->shares;
  }
  /// Takes over the share of `other`, which is then empty, like a default-made one.
  Buffer(Buffer&& other) noexcept : block_(other.block_) { other.block_ = nullptr; }
  ///@{
  /// Drops this share, and takes the one of `other`. Two operators and not one that takes a Buffer:
  /// clang 14 never destroys the argument of `buffer = {}` in a template.
  Buffer& operator=(const Buffer& other) noexcept { return *this = Buffer(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    if (block_ != nullptr) release();
    block_ = other.block_;
    other.block_ = nullptr;
    return *this;
  }
  ///@}
  ~Buffer() {
    if (block_ != nullptr) release();
  }

  /// Null for a default-made buffer.
  void* data() const noexcept { return block_ == nullptr ? nullptr : block_->bytes; }

  /// Whether this is the only share, so that writing is safe.
  bool unique() const noexcept { return block_ != nullptr && block_->shares == 1; }

 private:
  friend class Pool;

  struct Block;
  /// The blocks of one source.
  struct Store {
    MemorySource* source;
    std::array<Block*, 160> free{};  // by size class, up to 2^46 bytes
    std::size_t reserved = 0;
  };
  struct Block {
    Store* owner;
    std::size_t size_class;
    void* bytes;
    std::size_t shares = 0;
    Block* next = nullptr;
  };

  explicit Buffer(Block* block) noexcept : block_(block) {}
  /// Drops the share that it has. Not inlined at the many places where buffers end.
  [[gnu::noinline]] void release() noexcept {
    if (--block_->shares == 0) hand_in(block_);
  }
  /// Its pool may lend it again.
  static void hand_in(Block* block) noexcept {
    Block*& first = block->owner->free[block->size_class];
    block->next = first;
    first = block;
  }

  Block* block_ = nullptr;
};

/// Blocks for one thread, kept by size. A block is only used again for sizes of its own class (four
/// classes for each doubling), so a program that repeats its requests allocates nothing from the
/// second time on, whatever the order in which it returns blocks. Where a source has no more
/// memory, the pool gives its free blocks back to it and asks once more.
class Pool {
  friend class Buffer;
  using Block = Buffer::Block;
  using Store = Buffer::Store;

 public:
  /// Of memory of the host.
  Pool() : Pool(host_memory()) {}
  /// Of `source`, which must outlive it.
  explicit Pool(MemorySource& source) : blocks_{&source}, on_host_{&host_memory()} {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    give_back(blocks_);
    give_back(on_host_);
  }

  /// A buffer of at least `bytes` bytes, not initialised. Throws memory_error if the source has no
  /// memory for them, even without the free blocks of the pool.
  Buffer take(std::size_t bytes) { return take_from(blocks_, bytes); }

  /// The same in memory of the host, also for a pool of a device: for data that the host reads.
  Buffer take_on_host(std::size_t bytes) {
    return take_from(blocks_.source == on_host_.source ? blocks_ : on_host_, bytes);
  }

  /// Free blocks that a pool does not lend while this object exists: for recorded work, which keeps
  /// using its memory. For the pool's thread; the pool must outlive it.
  class Kept {
   public:
    Kept() = default;
    /// Takes over the blocks of `other`.
    Kept(Kept&& other) noexcept { std::swap(blocks_, other.blocks_); }
    /// Swaps the blocks of the two.
    Kept& operator=(Kept&& other) noexcept {
      std::swap(blocks_, other.blocks_);
      return *this;
    }
    ~Kept();

   private:
    friend class Pool;

    decltype(Store::free) blocks_{};
  };

  /// Keeps all blocks that are free now, except memory of the host in a pool of a device.
  Kept keep_free() noexcept {
    Kept kept;
    std::swap(kept.blocks_, blocks_.free);
    return kept;
  }

  /// Bytes of all blocks that it has now.
  std::size_t reserved() const noexcept { return blocks_.reserved + on_host_.reserved; }

  /// Of these, the bytes that buffers hold now or that are kept; whole blocks. Counts all free
  /// blocks.
  std::size_t lent() const noexcept { return lent(blocks_) + lent(on_host_); }

 private:
  struct SizeClass {
    std::size_t number;
    std::size_t bytes;
  };

  static constexpr std::size_t smallest_shift = 6;

  static std::size_t lent(const Store& store) noexcept;

  /// The bytes of the blocks of a size class, see `size_class`.
  static constexpr std::size_t bytes_of(std::size_t number) {
    if (number == 0) return std::size_t{1} << smallest_shift;
    return ((number - 1) % 4 + 5) << ((number - 1) / 4 + smallest_shift - 2);
  }

  /// Rounds up to 4, 5, 6 or 7 quarters of a power of two, at least 64 bytes.
  static constexpr SizeClass size_class(std::size_t bytes) {
    if (bytes <= (std::size_t{1} << smallest_shift)) return {0, std::size_t{1} << smallest_shift};
    const auto shift = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;
    const std::size_t quarter = std::size_t{1} << (shift - 2);
    const std::size_t quarters = (bytes - 1) / quarter + 1;  // 5 to 8
    return {(shift - smallest_shift) * 4 + quarters - 4, quarters * quarter};
  }

  [[gnu::noinline]] static Buffer take_from(Store& store, std::size_t bytes) {
    const SizeClass size = size_class(bytes);
    Block* block = size.number < store.free.size() ? store.free[size.number] : nullptr;
    if (block != nullptr) {
      store.free[size.number] = block->next;
    } else {
      block = allocate(store, size, bytes);
    }
    block->shares = 1;
    return Buffer(block);
  }
  static Block* allocate(Store& store, const SizeClass& size, std::size_t asked);
  /// All free blocks, to the source.
  static void give_back(Store& store) noexcept;

  Store blocks_;
  Store on_host_;  // empty if blocks_ are of the host too
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include <sys/mman.h>

namespace shardwise {

SHARDWISE_INLINE void detail::ask_for_huge_pages([[maybe_unused]] void* memory,
                                                 [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  constexpr std::size_t page = std::size_t{2} << 20;
  const std::size_t before = (page - reinterpret_cast<std::uintptr_t>(memory) % page) % page;
  if (bytes < before + page) return;
  ::madvise(static_cast<char*>(memory) + before, (bytes - before) / page * page, MADV_HUGEPAGE);
#endif
}

SHARDWISE_INLINE Buffer::Block* Pool::allocate(Store& store, const SizeClass& size,
                                               std::size_t asked) {
  const bool countable = size.bytes >= asked && size.number < store.free.size();
  void* bytes = countable ? store.source->allocate(size.bytes) : nullptr;
  if (bytes == nullptr && countable) {  // free blocks of other sizes may be what is missing
    give_back(store);
    bytes = store.source->allocate(size.bytes);
  }
  Block* const block =
      bytes == nullptr ? nullptr : new (std::nothrow) Block{&store, size.number, bytes};
  if (block == nullptr) {
    if (bytes != nullptr) store.source->release(bytes);
    throw memory_error({"no memory for ", asked, " bytes", store.source->state(),
                        "; this rank holds ", store.reserved,
                        " bytes in its pool. Use more ranks or a smaller batch"});
  }
  store.reserved += size.bytes;
  return block;
}

[[gnu::noinline]] SHARDWISE_INLINE void Pool::give_back(Store& store) noexcept {
  store.reserved = lent(store);
  for (Block*& first : store.free) {
    while (first != nullptr) {
      Block* const next = first->next;
      store.source->release(first->bytes);
      delete first;
      first = next;
    }
  }
}

SHARDWISE_INLINE std::size_t Pool::lent(const Store& store) noexcept {
  std::size_t bytes = store.reserved;
  for (const Block* block : store.free)
    for (; block != nullptr; block = block->next) bytes -= bytes_of(block->size_class);
  return bytes;
}

SHARDWISE_INLINE Pool::Kept::~Kept() {
  for (Block* block : blocks_) {
    while (block != nullptr) {
      Block* const next = block->next;
      Buffer::hand_in(block);
      block = next;
    }
  }
}

SHARDWISE_INLINE detail::HostMemory& host_memory() {
  static detail::HostMemory memory;
  return memory;
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
