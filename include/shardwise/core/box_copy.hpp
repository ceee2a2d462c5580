#pragma once
// Copies of boxes, on the host or on a device, and what a device adds box by box.

#include <array>
#include <cstddef>

#include "shardwise/core/box.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// Where the elements of a box lie in two tensors.
struct BoxElements {
  struct At {
    std::size_t from = 0, to = 0;
  };

  std::size_t axes;
  At first;
  std::array<std::size_t, Shape::max_rank> extents{};  // of the box
  std::array<std::size_t, Shape::max_rank> from_strides{};
  std::array<std::size_t, Shape::max_rank> to_strides{};

  BoxElements(const Shape& box, const BoxIn& from, const BoxIn& to) : axes(box.rank()) {
    for (std::size_t axis = 0; axis < axes; ++axis) {
      extents[axis] = box[axis].extent();
      from_strides[axis] = from.stride(axis);
      to_strides[axis] = to.stride(axis);
      first.from += from.begin[axis] * from_strides[axis];
      first.to += to.begin[axis] * to_strides[axis];
    }
  }

  /// Element i of the box.
  constexpr At operator[](std::size_t i) const {
    At at = first;
    for (std::size_t axis = axes; axis-- > 0; i /= extents[axis]) {
      at.from += i % extents[axis] * from_strides[axis];
      at.to += i % extents[axis] * to_strides[axis];
    }
    return at;
  }
};

/// Copies element i of a box from one tensor to another.
template <class T>
struct BoxElementCopy {
  BoxElements box;
  const T* from;
  T* to;
  constexpr void operator()(std::size_t i) const {
    const BoxElements::At at = box[i];
    to[at.to] = from[at.from];
  }
};

/// Adds element i of a box of one tensor to another.
template <class T>
struct BoxElementAdd {
  BoxElements box;
  const T* from;
  accumulate_t<T>* to;
  constexpr void operator()(std::size_t i) const {
    const BoxElements::At at = box[i];
    to[at.to] += static_cast<accumulate_t<T>>(from[at.from]);
  }
};

/// Copies the box from `source` to `target`, which must not overlap: on the host run by run, on a
/// device element by element.
template <class B, class T>
void copy_box(B& backend, const Shape& box, const T* source, const BoxIn& from, T* target,
              const BoxIn& to) {
  if constexpr (DeviceBackend<B>) {
    if (box.elements() > 0)
      backend.for_each(box.elements(), BoxElementCopy<T>{{box, from, to}, source, target});
  } else {
    shardwise::detail::copy_box(box, source, from, target, to);
  }
}

/// Adds the box to `target`, on a device.
template <DeviceBackend B, class T>
void add_box(B& backend, const Shape& box, const T* source, const BoxIn& from,
             accumulate_t<T>* target, const BoxIn& to) {
  if (box.elements() > 0)
    backend.for_each(box.elements(), BoxElementAdd<T>{{box, from, to}, source, target});
}

}  // namespace shardwise::detail
