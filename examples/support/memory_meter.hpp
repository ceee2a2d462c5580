#pragma once
// Counts the heap memory of the calling thread, by replacing operator new in this program. For a
// thread rank this is the rank's memory: tensors, packed weights and staging of this library.
// Memory that oneDNN allocates inside a call is not counted; oneDNN gets only a rank's part.
//
// To be included by one source file of a program.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace example {

/// Bytes that the calling thread has allocated since it began.
struct MemoryMeter {
  std::size_t largest_block = 0;
  std::size_t held = 0;  ///< allocated and not freed by this thread
  std::size_t most_held = 0;

  static MemoryMeter& of_this_thread() {
    thread_local MemoryMeter meter;
    return meter;
  }

  void take(std::size_t bytes) {
    largest_block = std::max(largest_block, bytes);
    held += bytes;
    most_held = std::max(most_held, held);
  }
  void give_back(std::size_t bytes) { held -= std::min(held, bytes); }
};

namespace detail {

// The size of each block is stored in front of it; the block is aligned to a cache line.
inline constexpr std::size_t alignment = 64;

inline void* take(std::size_t bytes) noexcept {
  const std::size_t rounded = (bytes + 2 * alignment - 1) / alignment * alignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  if (memory == nullptr) return nullptr;
  *reinterpret_cast<std::size_t*>(memory) = bytes;
  MemoryMeter::of_this_thread().take(bytes);
  return memory + alignment;
}

inline void give_back(void* block) noexcept {
  if (block == nullptr) return;
  std::byte* memory = static_cast<std::byte*>(block) - alignment;
  MemoryMeter::of_this_thread().give_back(*reinterpret_cast<std::size_t*>(memory));
  std::free(memory);
}

inline void* take_or_throw(std::size_t bytes) {
  void* block = take(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace detail

}  // namespace example

// The array forms and all others of the standard library call these. They cannot be inline.
// NOLINTBEGIN(misc-definitions-in-headers)
void* operator new(std::size_t bytes) { return example::detail::take_or_throw(bytes); }
void* operator new(std::size_t bytes, std::align_val_t) {
  return example::detail::take_or_throw(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return example::detail::take(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t, const std::nothrow_t&) noexcept {
  return example::detail::take(bytes);
}
void operator delete(void* block) noexcept { example::detail::give_back(block); }
void operator delete(void* block, std::size_t) noexcept { example::detail::give_back(block); }
void operator delete(void* block, std::align_val_t) noexcept { example::detail::give_back(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  example::detail::give_back(block);
}
// NOLINTEND(misc-definitions-in-headers)
