#pragma once
// The part of a global tensor that one rank holds.

#include <string>

#include "shardwise/core/error.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// Position of the axis that L splits. Throws shape_error if the tensor has no such axis.
template <SplitLayout L>
constexpr std::size_t split_position(const Shape& global) {
  const std::size_t position = global.find(L::axis);
  if (position == global.rank()) {
    throw shape_error({"a tensor ", global, " cannot be laid out as ", layout_name<L>(),
                       ": it has no axis of that name"});
  }
  return position;
}

/// The part that the rank at `place` holds of an axis that L splits.
template <SplitLayout L>
constexpr Interval held_interval(const Dim& dim, Place place) {
  if constexpr (ShardedLayout<L>) {
    return block_of(dim, place);
  } else {
    const Interval units = L::window.on(dim).held_by(place, dim.units);
    return {units.offset * dim.grain, units.size * dim.grain};
  }
}

/// The shape of the part that the rank at `place` holds of a tensor of shape `global`. The whole
/// shape for layouts that do not split.
template <Layout L>
constexpr Shape local_shape(const Shape& global, Place place) {
  Shape local = global;
  if constexpr (SplitLayout<L>) {
    Dim& split = local[split_position<L>(global)];
    if (split.known()) split = with_extent(split, held_interval<L>(split, place).size);
  }
  return local;
}

/// The part of the split axis that the rank holds; an empty one at 0 if L does not split.
template <Layout L>
constexpr Interval local_block(const Shape& global, Place place) {
  if constexpr (SplitLayout<L>) {
    return held_interval<L>(global[split_position<L>(global)], place);
  } else {
    return {};
  }
}

}  // namespace shardwise
