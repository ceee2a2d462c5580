#pragma once
// A rank's part of a global tensor, in memory of its own.

#include <vector>

#include "shardwise/layout/view.hpp"

namespace shardwise {

/// Owns what the rank at `place` holds of a tensor laid out as L; begins as zeros.
/// With extents that are all static, `Tensor<float, Invariant, Extents<...>> t;` needs no shape.
template <Element T, Layout L, class E = Extents<>>
class Tensor {
 public:
  /// Its shape is in the type.
  explicit Tensor(Place place = {}) requires(E::is_static) : Tensor(E::pattern(), place) {}

  /// Throws shape_error if `global` has no axis for L or does not fit E.
  explicit Tensor(const Shape& global, Place place = {})
      : view_(nullptr, global, place), memory_(view_.size()) {}

  ///@{
  /// What this rank holds, to be handed on. Valid as long as the tensor.
  View<T, L, E> view() { return {memory_.data(), view_.global(), view_.place()}; }
  View<const T, L, E> view() const { return {memory_.data(), view_.global(), view_.place()}; }
  ///@}

  ///@{
  /// The elements that this rank holds, dense and row-major, and how many they are.
  T* data() { return memory_.data(); }
  const T* data() const { return memory_.data(); }
  T& operator[](std::size_t i) { return memory_[i]; }
  const T& operator[](std::size_t i) const { return memory_[i]; }
  std::size_t size() const { return memory_.size(); }
  ///@}

  ///@{
  /// The shape of the whole tensor, the shape of what this rank holds, and which rank that is.
  const Shape& global() const { return view_.global(); }
  const Shape& local() const { return view_.local(); }
  Place place() const { return view_.place(); }
  ///@}

 private:
  View<const T, L, E> view_;  // the shapes alone
  std::vector<T> memory_;
};

}  // namespace shardwise
