#pragma once
// Copies of boxes, on the host or on a device.

#include <array>
#include <cstddef>

#include "shardwise/core/box.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// Copies element i of a box from one tensor to another.
template <class T>
struct BoxElementCopy {
  const T* source;
  T* target;
  std::size_t axes;
  std::array<std::size_t, Shape::max_rank> extents{};  // of the box
  std::array<std::size_t, Shape::max_rank> from_strides{};
  std::array<std::size_t, Shape::max_rank> to_strides{};

  BoxElementCopy(const Shape& box, const T* from_data, const BoxIn& from, T* to_data,
                 const BoxIn& to)
      : source(from_data), target(to_data), axes(box.rank()) {
    for (std::size_t axis = 0; axis < axes; ++axis) {
      extents[axis] = box[axis].extent();
      from_strides[axis] = from.stride(axis);
      to_strides[axis] = to.stride(axis);
      source += from.begin[axis] * from_strides[axis];
      target += to.begin[axis] * to_strides[axis];
    }
  }

  constexpr void operator()(std::size_t i) const {
    std::size_t from = 0;
    std::size_t to = 0;
    for (std::size_t axis = axes; axis-- > 0; i /= extents[axis]) {
      from += i % extents[axis] * from_strides[axis];
      to += i % extents[axis] * to_strides[axis];
    }
    target[to] = source[from];
  }
};

/// Copies the box from `source` to `target`, which must not overlap: on the host run by run, on a
/// device element by element.
template <class B, class T>
void copy_box(B& backend, const Shape& box, const T* source, const BoxIn& from, T* target,
              const BoxIn& to) {
  if constexpr (DeviceBackend<B>) {
    if (box.elements() > 0)
      backend.for_each(box.elements(), BoxElementCopy<T>(box, source, from, target, to));
  } else {
    shardwise::detail::copy_box(box, source, from, target, to);
  }
}

}  // namespace shardwise::detail
