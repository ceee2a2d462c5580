#pragma once
// A list that grows, in constant expressions too.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// The part of std::vector that constant expressions of the library need. libstdc++'s vector is not
/// constexpr with _GLIBCXX_DEBUG.
template <class T>
requires std::is_trivially_copyable_v<T>
class GrowingList {
 public:
  constexpr GrowingList() = default;
  constexpr GrowingList(std::initializer_list<T> entries)
      : GrowingList(entries.begin(), entries.size()) {}
  /// So many entries, each T{}.
  static constexpr GrowingList of_size(std::size_t size) {
    GrowingList list(nullptr, 0, size);
    list.size_ = size;
    return list;
  }
  constexpr GrowingList(const GrowingList& other) : GrowingList(other.entries_, other.size_) {}
  constexpr GrowingList(GrowingList&& other) noexcept { swap(other); }
  constexpr GrowingList& operator=(GrowingList other) noexcept {
    swap(other);
    return *this;
  }
  constexpr ~GrowingList() { delete[] entries_; }

  constexpr void add(T entry) {
    if (size_ == capacity_) *this = GrowingList(entries_, size_, 2 * size_ + 4);
    entries_[size_++] = entry;
  }

  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](std::size_t i) { return entries_[i]; }
  constexpr const T& operator[](std::size_t i) const { return entries_[i]; }
  constexpr const T* begin() const { return entries_; }
  constexpr const T* end() const { return entries_ + size_; }

  friend constexpr bool operator==(const GrowingList& a, const GrowingList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  constexpr GrowingList(const T* from, std::size_t size) : GrowingList(from, size, size) {}
  constexpr GrowingList(const T* from, std::size_t size, std::size_t capacity)
      : entries_(capacity == 0 ? nullptr : new T[capacity]{}), size_(size), capacity_(capacity) {
    for (std::size_t i = 0; i < size; ++i) entries_[i] = from[i];
  }
  constexpr void swap(GrowingList& other) noexcept {
    std::swap(entries_, other.entries_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  T* entries_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace shardwise::detail
