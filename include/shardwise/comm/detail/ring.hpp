#pragma once
// A queue that keeps its memory.

#include <cstddef>
#include <utility>
#include <vector>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// First in, first out. It grows to the largest size that it ever had, and never shrinks.
template <class T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const T& front() const { return slots_[first_]; }
  T& back() { return slots_[(first_ + size_ - 1) % slots_.size()]; }

  /// Makes room for one more, so that the next push cannot fail.
  void reserve_one() {
    if (size_ == slots_.size()) grow();
  }

  /// If there is no memory, the queue is unchanged.
  void push(T value) {
    reserve_one();
    slots_[(first_ + size_) % slots_.size()] = std::move(value);
    ++size_;
  }

  T pop() {
    T value = std::move(slots_[first_]);
    first_ = (first_ + 1) % slots_.size();
    --size_;
    return value;
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : 2 * slots_.size());
    for (std::size_t i = 0; i < size_; ++i)
      larger[i] = std::move(slots_[(first_ + i) % slots_.size()]);
    slots_.swap(larger);
    first_ = 0;
  }

  std::vector<T> slots_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace shardwise::detail
