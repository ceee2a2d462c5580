#pragma once
// Counts what is taken from the heap, and lets it fail, by replacing operator new in the program.
// To be included by one source file of it.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace testing {

/// Of the calling thread, since it began.
inline thread_local std::size_t allocations = 0;

/// What the thread allocates in steps 3 to 6, of which each is `step()`.
template <class Step>
std::size_t allocated_after_second(Step&& step) {
  step();
  step();
  const std::size_t before = allocations;
  for (int i = 0; i < 4; ++i) step();
  return allocations - before;
}

/// How many allocations of the program succeed before some fail: one, or all from then on. Negative
/// if all succeed.
inline std::atomic<long> allocations_left = -1;
inline std::atomic<bool> memory_stays_away = false;

/// How many allocations of the calling thread succeed before all fail. Negative if all succeed.
inline thread_local long own_allocations_left = -1;

inline bool allocation_fails() {
  if (own_allocations_left == 0) return true;
  if (own_allocations_left > 0) --own_allocations_left;
  if (allocations_left < 0) return false;
  const bool fails = allocations_left-- == 0;
  if (fails && memory_stays_away) allocations_left = 0;
  return fails;
}

/// If it is set, it is told the bytes of each allocation of the program, and where it was asked
/// for.
inline std::atomic<void (*)(std::size_t bytes, const void* caller)> note_allocation = nullptr;

inline void* counted(std::size_t bytes, std::size_t alignment, const void* caller) {
  ++allocations;
  if (const auto note = note_allocation.load()) note(bytes, caller);
  if (allocation_fails()) return nullptr;
  if (bytes >> 40 != 0) return nullptr;  // a sanitizer's allocator would end the program instead
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

inline void* counted_or_throw(std::size_t bytes, std::size_t alignment, const void* caller) {
  void* memory = counted(bytes, alignment, caller);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Not inlined, for g++ would take the pair of a new and a free for a mistake.
[[gnu::noinline]] inline void released(void* p) { std::free(p); }

inline constexpr std::size_t plain = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace testing

#ifndef __CUDA_ARCH__  // for nvcc they would be functions of the device too

// Not inlined, so that the return address is that of the caller.
[[gnu::noinline]] void* operator new(std::size_t n) {
  return testing::counted_or_throw(n, testing::plain, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t n) {
  return testing::counted_or_throw(n, testing::plain, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return testing::counted(n, testing::plain, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return testing::counted(n, testing::plain, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a) {
  return testing::counted_or_throw(n, static_cast<std::size_t>(a), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t a) {
  return testing::counted_or_throw(n, static_cast<std::size_t>(a), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a,
                                     const std::nothrow_t&) noexcept {
  return testing::counted(n, static_cast<std::size_t>(a), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t a,
                                       const std::nothrow_t&) noexcept {
  return testing::counted(n, static_cast<std::size_t>(a), __builtin_return_address(0));
}
void operator delete(void* p) noexcept { testing::released(p); }
void operator delete[](void* p) noexcept { testing::released(p); }
void operator delete(void* p, std::size_t) noexcept { testing::released(p); }
void operator delete[](void* p, std::size_t) noexcept { testing::released(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { testing::released(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { testing::released(p); }
void operator delete(void* p, std::align_val_t) noexcept { testing::released(p); }
void operator delete[](void* p, std::align_val_t) noexcept { testing::released(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { testing::released(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { testing::released(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  testing::released(p);
}
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  testing::released(p);
}

#endif
