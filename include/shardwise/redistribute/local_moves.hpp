#pragma once
// The redistributions that need no other rank: slice, pad with zeros, first rank keeps.

#include <algorithm>
#include <cstddef>

#include "shardwise/core/box.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise::detail {

/// Block `of` one axis, within a tensor of shape `whole`.
inline Shape with_block(Shape whole, std::size_t axis, Place of) {
  whole[axis] = local_dim(whole[axis], of);
  return whole;
}

/// out = the rank's part of in, which is whole on every rank.
template <class T, Layout From, SplitLayout To>
void slice(View<const T, From> in, View<T, To> out) {
  const std::size_t axis = split_position<To>(out.global());
  const Interval block = local_block<To>(out.global(), out.place());
  copy_box(out.local(), in.data(), BoxIn{in.local(), {}}.at(axis, block.offset), out.data(),
           BoxIn{out.local(), {}});
}

/// out = zeros with the rank's part in at its place.
template <class T, SplitLayout From, Layout To>
void pad(View<const T, From> in, View<T, To> out) {
  const std::size_t axis = split_position<From>(in.global());
  const Interval block = local_block<From>(in.global(), in.place());
  std::fill_n(out.data(), out.size(), T{});
  copy_box(in.local(), in.data(), BoxIn{in.local(), {}}, out.data(),
           BoxIn{out.local(), {}}.at(axis, block.offset));
}

/// out = in, unless both are the same memory.
template <class T, Layout From, Layout To>
void keep(View<const T, From> in, View<T, To> out) {
  if (in.data() != out.data()) std::copy_n(in.data(), in.size(), out.data());
}

/// out = in on the first rank and zeros on the others.
template <class T, Layout From, Layout To>
void keep_first(View<const T, From> in, View<T, To> out) {
  if (in.place().rank == 0) {
    keep(in, out);
  } else {
    std::fill_n(out.data(), out.size(), T{});
  }
}

}  // namespace shardwise::detail
