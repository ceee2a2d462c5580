#pragma once
// A list that grows, in constant expressions too.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// The part of std::vector that the library itself needs, for T that T{} makes. libstdc++'s vector
/// is not constexpr with _GLIBCXX_DEBUG, and its code takes compilers ten times as long.
template <class T>
class GrowingList {
 public:
  constexpr GrowingList() = default;
  constexpr GrowingList(std::initializer_list<T> entries)
      : GrowingList(entries.begin(), entries.size()) {}
  /// So many entries, each T{}.
  static constexpr GrowingList of_size(std::size_t size) {
    GrowingList list(size);
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

  constexpr void add(const T& entry) { add(T(entry)); }
  /// `entry` is no entry of this list.
  constexpr void add(T&& entry) {
    if (size_ == capacity_) grow();
    entries_[size_++] = std::move(entry);
  }
  /// Of a list that is not empty.
  constexpr void remove_last() {
    last() = T{};
    --size_;
  }

  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  ///@{
  /// Entry i, below size(). Sanitizers stop where it is not, and so does the preset dev; in other
  /// builds compilers make no code of this check.
  constexpr T& operator[](std::size_t i) {
    if (i >= size_) __builtin_unreachable();
    return entries_[i];
  }
  constexpr const T& operator[](std::size_t i) const {
    if (i >= size_) __builtin_unreachable();
    return entries_[i];
  }
  ///@}
  /// Of a list that is not empty, and likewise checked.
  constexpr T& last() { return (*this)[size_ - 1]; }
  constexpr T* begin() { return entries_; }
  constexpr T* end() { return entries_ + size_; }
  constexpr const T* begin() const { return entries_; }
  constexpr const T* end() const { return entries_ + size_; }

  friend constexpr bool operator==(const GrowingList& a, const GrowingList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  /// Empty, with room for so many.
  constexpr explicit GrowingList(std::size_t capacity)
      : entries_(capacity == 0 ? nullptr : new T[capacity]{}), capacity_(capacity) {}
  constexpr GrowingList(const T* from, std::size_t size) : GrowingList(size) {
    for (; size_ < size; ++size_) entries_[size_] = from[size_];
  }
  [[gnu::noinline]] constexpr void grow() {
    GrowingList larger(2 * size_ + 4);
    for (std::size_t i = 0; i < size_; ++i) larger.entries_[i] = std::move(entries_[i]);
    larger.size_ = size_;
    swap(larger);
  }
  constexpr void swap(GrowingList& other) noexcept {
    T* const mine = entries_;
    entries_ = other.entries_;
    other.entries_ = mine;
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  T* entries_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace shardwise::detail
