#pragma once
// The rows of tokens that a rank holds of a tensor.

#include <cstddef>

#include "shardwise/core/partition.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// The rows of tokens of a view.
/// throws  shape_error if its axes do not begin with batch and sequence, or with sequence
template <class T, Layout L, class E>
constexpr TokenRows token_rows(const View<T, L, E>& view) {
  const Shape& whole = view.global();
  const std::size_t position = detail::sequence_position(whole);
  TokenRows rows;
  rows.length = whole[position].extent();
  rows.here = view.local()[position].extent();
  rows.samples = view.local().elements(0, position);
  if constexpr (SplitLayout<L>) {
    const Interval block = local_block<L>(whole, view.place());
    if (L::axis == Axis::batch) rows.first_sample = block.offset;
    if (L::axis == Axis::sequence) rows.first_row = block.offset;
  }
  return rows;
}

}  // namespace shardwise
