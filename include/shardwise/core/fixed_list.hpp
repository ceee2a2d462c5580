#pragma once
// A list of objects that stay where they are.

#include <cstddef>
#include <utility>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// As many T as it is made with, each T{}. They need not be movable, as in std::vector, whose code
/// takes the compiler ten times as long.
template <class T>
class FixedList {
 public:
  [[gnu::noinline]] explicit FixedList(std::size_t size)
      : entries_(size == 0 ? nullptr : new T[size]{}), size_(size) {}
  FixedList(const FixedList&) = delete;
  FixedList& operator=(const FixedList&) = delete;
  ~FixedList() { delete[] entries_; }

  void swap(FixedList& other) noexcept {
    T* const mine = entries_;
    entries_ = other.entries_;
    other.entries_ = mine;
    std::swap(size_, other.size_);
  }

  std::size_t size() const { return size_; }
  T* data() { return entries_; }
  T& operator[](std::size_t i) { return entries_[i]; }
  const T& operator[](std::size_t i) const { return entries_[i]; }
  T* begin() { return entries_; }
  T* end() { return entries_ + size_; }
  const T* begin() const { return entries_; }
  const T* end() const { return entries_ + size_; }

 private:
  T* entries_;
  std::size_t size_;
};

}  // namespace shardwise::detail
