#pragma once
// A tensor between the layers of a model: its memory is shared until a layer needs to write.

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "shardwise/core/memory.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

namespace detail {

class SavedValue;

}  // namespace detail

/// A view and, unless it is in a caller's memory, a share in the buffer of its memory. A copy
/// shares the memory; the memory may be written to only while no other value has a share.
template <Element T, Layout L>
class Value {
 public:
  using layout = L;  ///< of the tensor over the ranks

  Value() = default;

  /// New, uninitialised memory.
  [[gnu::noinline]] Value(Pool& pool, const Shape& global, const place_t<L>& place)
      : view_(nullptr, global, place), buffer_(pool.take(view_.size() * sizeof(T))) {
    detail::set_address(view_, static_cast<const T*>(buffer_.data()));
  }

  /// Memory of the caller, for reading only.
  explicit Value(View<const T, L> borrowed) noexcept : view_(borrowed) {}

  /// The same memory as a tensor of another shape or layout with the same number of local elements.
  template <Layout From>
  Value(Value<T, From>&& other, const Shape& global)
      : view_(other.view_.data(), global, other.view_.place()), buffer_(std::move(other.buffer_)) {}

  /// The same tensor in a layout that needs no movement.
  template <Layout From>
  explicit Value(Value<T, From>&& other)
      : view_(detail::relabelled<L>(other.view_)), buffer_(std::move(other.buffer_)) {}

  ///@{
  /// The rank's part, for reading; the global shape; the number of this rank.
  const View<const T, L>& view() const noexcept { return view_; }
  const Shape& global() const noexcept { return view_.global(); }
  place_t<L> place() const noexcept { return view_.place(); }
  ///@}

  /// Whether no other value shares the memory, so that it may be written to.
  bool may_write() const noexcept { return buffer_.unique(); }

  /// Releases the share in the memory. The view must not be read after this.
  void release() { buffer_ = {}; }

  /// The memory to write to. Call it only if `may_write()`.
  View<T, L> writable() noexcept { return view_.in_memory(static_cast<T*>(buffer_.data())); }

 private:
  template <Element, Layout>
  friend class Value;
  friend class detail::SavedValue;

  View<const T, L> view_;
  Buffer buffer_;
};

namespace detail {

/// A Value of a type that only its reader knows, or none. So what layers save has one type, and is
/// compiled once.
class SavedValue {
 public:
  template <class T, Layout L>
  void save(const Value<T, L>& value) {
    using V = View<const T, L>;
    static_assert(std::is_trivially_copyable_v<V> && sizeof(V) <= sizeof(Widest));
    std::memcpy(&view_, &value.view_, sizeof(V));
    buffer_ = value.buffer_;
  }

  /// Returns what was saved, a V, and is empty then.
  template <class V>
  V take() {
    V value(*std::launder(reinterpret_cast<const decltype(V::view_)*>(view_)));
    value.buffer_ = std::move(buffer_);
    return value;
  }

  void forget() { buffer_ = {}; }

 private:
  using Widest = View<const float, Sharded<Axis::batch>>;

  alignas(Widest) std::byte view_[sizeof(Widest)]{};
  Buffer buffer_;
};

}  // namespace detail

}  // namespace shardwise
