#pragma once
// The rows of tokens that a rank holds of a tensor.

#include <cstddef>

#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/held_part.hpp"

namespace shardwise {

/// The rows of tokens of a part, as `frame.held_part(view)` returns it.
/// throws  shape_error if its axes do not begin with batch and sequence, or with sequence
constexpr TokenRows token_rows(const detail::HeldPart& part) {
  const std::size_t position = detail::sequence_position(part.whole);
  TokenRows rows;
  rows.length = part.whole[position].extent();
  rows.here = part.local[position].extent();
  rows.samples = part.local.elements(0, position);
  if (position > 0) rows.first_sample = part.begin[0];
  rows.first_row = part.begin[position];
  return rows;
}

}  // namespace shardwise
