#pragma once
// Copies a box of one tensor into another. Every slice, pad, pack and unpack uses it.

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/core/shape.hpp"

namespace shardwise::detail {

/// A tensor in memory (row-major, dense, of shape `whole`) and the first element of a box in it.
struct BoxIn {
  Shape whole;                                       ///< of all axes of the tensor
  std::array<std::size_t, Shape::max_rank> begin{};  ///< first element of the box, axis by axis

  /// The same tensor, but the box begins at `offset` of one axis.
  constexpr BoxIn at(std::size_t axis, std::size_t offset) const {
    BoxIn moved = *this;
    moved.begin[axis] = offset;
    return moved;
  }

  /// Elements between neighbours along the axis.
  constexpr std::size_t stride(std::size_t axis) const {
    return whole.elements(axis + 1, whole.rank());
  }
};

/// Calls f(offset in a, offset in b, length) for every run of elements that is contiguous in both
/// tensors, in row-major order of the box. `box` is the shape of the box; all three have the same
/// axes. An empty box has no run.
template <class F>
constexpr void for_each_run(const Shape& box, const BoxIn& a, const BoxIn& b, F&& f) {
  if (box.elements() == 0) return;
  std::size_t outer = box.rank();  // the axes from here on form one run
  std::size_t run = 1;
  while (outer > 0) {
    --outer;
    run *= box[outer].extent();
    const bool whole_in_both = box[outer].extent() == a.whole[outer].extent() &&
                               box[outer].extent() == b.whole[outer].extent();
    if (!whole_in_both) break;
  }
  std::size_t in_a = 0;
  std::size_t in_b = 0;
  std::array<std::size_t, Shape::max_rank> step_a{}, step_b{};
  for (std::size_t axis = 0; axis < box.rank(); ++axis) {
    step_a[axis] = a.stride(axis);
    step_b[axis] = b.stride(axis);
    in_a += a.begin[axis] * step_a[axis];
    in_b += b.begin[axis] * step_b[axis];
  }
  std::array<std::size_t, Shape::max_rank> at{};
  for (;;) {
    f(in_a, in_b, run);
    std::size_t axis = outer;
    for (;;) {  // go to the next run, innermost of the outer axes first
      if (axis == 0) return;
      --axis;
      in_a += step_a[axis];
      in_b += step_b[axis];
      if (++at[axis] < box[axis].extent()) break;
      in_a -= at[axis] * step_a[axis];
      in_b -= at[axis] * step_b[axis];
      at[axis] = 0;
    }
  }
}

/// Copies the box from `source` to `target`, which must not overlap.
template <class T>
constexpr void copy_box(const Shape& box, const T* source, const BoxIn& from, T* target,
                        const BoxIn& to) {
  for_each_run(box, from, to, [&](std::size_t a, std::size_t b, std::size_t length) {
    std::copy_n(source + a, length, target + b);
  });
}

}  // namespace shardwise::detail
