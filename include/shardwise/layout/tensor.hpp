#pragma once
// A rank's part of a global tensor, with its memory.

#include <cstddef>
#include <new>
#include <span>
#include <vector>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

namespace detail {

[[noreturn, gnu::cold]] void refuse_memory(const Shape& local, std::size_t bytes);

/// Memory for a rank's part of this shape, of zeros.
/// throws   memory_error
template <Element T>
std::vector<T> zeros(const Shape& local) try {
  return std::vector<T>(local.elements());
} catch (const std::bad_alloc&) {
  refuse_memory(local, local.elements() * sizeof(T));
}

}  // namespace detail

/// Owns the part that the rank at `place` holds of a tensor in layout L, initially zeros. If all
/// extents are static, `Tensor<float, Invariant, Extents<...>> t;` needs no shape.
template <Element T, Layout L, class E = Extents<>>
class Tensor {
 public:
  ///@{
  /// As View says.
  using value_type = T;
  using layout = L;
  ///@}

  /// Its shape is in the type.
  explicit Tensor(const place_t<L>& place = {}) requires(E::is_static)
      : Tensor(E::pattern(), place) {}

  /// Throws shape_error if `global` has no axis for L or does not fit E, memory_error.
  explicit Tensor(const Shape& global, const place_t<L>& place = {})
      : view_(nullptr, global, place), memory_(detail::zeros<T>(view_.local())) {}

  ///@{
  /// A view of this rank's part. Valid as long as the tensor.
  View<T, L, E> view() noexcept { return view_.in_memory(memory_.data()); }
  View<const T, L, E> view() const noexcept { return view_.in_memory(memory_.data()); }
  ///@}

  ///@{
  /// The same where a function takes a view of this type. Not of a tensor that would be gone.
  operator View<T, L, E>() & { return view(); }
  operator View<const T, L, E>() const& { return view(); }
  operator View<const T, L, E>() && = delete;
  ///@}

  ///@{
  /// The elements that this rank holds, dense and row-major, and their number.
  T* data() { return memory_.data(); }
  const T* data() const { return memory_.data(); }
  T& operator[](std::size_t i) { return memory_[i]; }
  const T& operator[](std::size_t i) const { return memory_[i]; }
  std::size_t size() const { return memory_.size(); }
  std::span<T> span() noexcept { return {memory_.data(), memory_.size()}; }
  std::span<const T> span() const noexcept { return {memory_.data(), memory_.size()}; }
  ///@}

  ///@{
  /// The shape of the whole tensor, the shape of this rank's part, and the rank.
  const Shape& global() const { return view_.global(); }
  const Shape& local() const { return view_.local(); }
  place_t<L> place() const { return view_.place(); }
  ///@}

 private:
  View<const T, L, E> view_;  // shapes only
  std::vector<T> memory_;
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void refuse_memory(const Shape& local, std::size_t bytes) {
  throw memory_error({"no memory for ", bytes, " bytes of a tensor ", local,
                      ". Use more ranks or a smaller batch"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
