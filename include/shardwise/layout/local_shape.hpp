#pragma once
// The part of a global tensor that one rank holds.

#include <string>

#include "shardwise/core/error.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// Position of the axis that L splits. Throws shape_error if the tensor has no such axis.
template <ShardedLayout L>
constexpr std::size_t split_position(const Shape& global) {
  const std::size_t position = global.find(L::axis);
  if (position == global.rank()) {
    throw shape_error("a tensor " + to_string(global) + " cannot be laid out as " +
                      layout_name<L>() + ": it has no axis of that name");
  }
  return position;
}

/// The shape of what the rank at `place` holds of a tensor of shape `global`.
/// The whole shape for all layouts but `Sharded`.
template <Layout L>
constexpr Shape local_shape(const Shape& global, Place place) {
  Shape local = global;
  if constexpr (ShardedLayout<L>) {
    Dim& split = local[split_position<L>(global)];
    if (split.known()) split = local_dim(split, place);
  }
  return local;
}

/// The block of the split axis that the rank holds; an empty block at 0 if L splits nothing.
template <Layout L>
constexpr Interval local_block(const Shape& global, Place place) {
  if constexpr (ShardedLayout<L>) {
    return block_of(global[split_position<L>(global)], place);
  } else {
    return {};
  }
}

}  // namespace shardwise
