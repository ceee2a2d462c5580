#pragma once
// The redistributions that need no other rank: slice, pad with zeros, first rank keeps.

#include <cstddef>

#include "shardwise/core/box_copy.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise::detail {

/// Block `of` one axis, within a tensor of shape `whole`.
inline Shape with_block(Shape whole, std::size_t axis, Place of) {
  whole[axis] = local_dim(whole[axis], of);
  return whole;
}

/// out = the rank's part of in, of which every rank holds the whole.
template <class B, class T, Layout From, SplitLayout To>
void slice(B& backend, const View<const T, From>& in, const View<T, To>& out) {
  const std::size_t axis = split_position<To>(out.global());
  const Interval block = local_block<To>(out.global(), out.place());
  copy_box(backend, out.local(), in.data(), BoxIn{in.local(), {}}.at(axis, block.offset),
           out.data(), BoxIn{out.local(), {}});
}

/// out = zeros, with `in` at the position of the rank's part.
template <class B, class T, SplitLayout From, Layout To>
void pad(B& backend, const View<const T, From>& in, const View<T, To>& out) {
  const std::size_t axis = split_position<From>(in.global());
  const Interval block = local_block<From>(in.global(), in.place());
  fill(backend, out.data(), out.size(), T{});
  copy_box(backend, in.local(), in.data(), BoxIn{in.local(), {}}, out.data(),
           BoxIn{out.local(), {}}.at(axis, block.offset));
}

/// out = in, unless both are the same memory.
template <class B, class T, Layout From, Layout To>
void keep(B& backend, const View<const T, From>& in, const View<T, To>& out) {
  copy(backend, in.data(), in.size(), out.data());
}

/// out = in on the first rank and zeros on the others.
template <class B, class T, Layout From, Layout To>
void keep_first(B& backend, const View<const T, From>& in, const View<T, To>& out) {
  if (in.place().rank == 0) {
    keep(backend, in, out);
  } else {
    fill(backend, out.data(), out.size(), T{});
  }
}

}  // namespace shardwise::detail
