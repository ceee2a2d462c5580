#pragma once
// A tensor on its way through a model: memory that is shared until somebody needs to write.

#include <utility>

#include "shardwise/core/memory.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// A view and, unless it lies in a caller's memory, a share in the buffer that holds it. Copying
/// shares the memory; it may be written to only while nobody else holds a share.
template <Element T, Layout L>
class Value {
 public:
  using layout = L;  ///< how the tensor lies over the ranks

  Value() = default;

  /// New memory of any content.
  Value(Pool& pool, const Shape& global, Place place)
      : view_(nullptr, global, place), buffer_(pool.take(view_.size() * sizeof(T))) {
    view_ = view_.in_memory(static_cast<const T*>(buffer_.data()));
  }

  /// Memory of the caller, which is only read.
  explicit Value(View<const T, L> borrowed) : view_(borrowed) {}

  /// The same memory, seen as another shape or layout of as many local elements.
  template <Layout From>
  Value(Value<T, From>&& other, const Shape& global)
      : view_(other.view_.data(), global, other.view_.place()), buffer_(std::move(other.buffer_)) {}

  /// The same, laid out as one that moves nothing.
  template <Layout From>
  explicit Value(Value<T, From>&& other)
      : view_(detail::relabelled<L>(other.view_)), buffer_(std::move(other.buffer_)) {}

  ///@{
  /// What this rank holds, to be read; the shape of the whole; which rank this is.
  const View<const T, L>& view() const { return view_; }
  const Shape& global() const { return view_.global(); }
  Place place() const { return view_.place(); }
  ///@}

  /// Whether nobody else holds a share in the memory, so that it may be written to.
  bool may_write() const { return buffer_.unique(); }

  /// Gives up the share in the memory, which nobody may look at through this any more.
  void release() { buffer_ = {}; }

  /// The memory to write to. Call it only if `may_write()`.
  View<T, L> writable() { return view_.in_memory(static_cast<T*>(buffer_.data())); }

 private:
  template <Element, Layout>
  friend class Value;

  View<const T, L> view_;
  Buffer buffer_;
};

}  // namespace shardwise
