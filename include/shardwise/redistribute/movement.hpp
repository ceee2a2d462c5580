#pragma once
// Which pairs of layouts over one axis of ranks have a redistribution, and what it does.

#include <cstdint>

#include "shardwise/layout/layout_value.hpp"

namespace shardwise {

/// The operation of a redistribution on the elements.
enum class Movement : std::uint8_t {
  none,            ///< the same memory has the other layout
  keep_first,      ///< the first rank keeps its elements, the others have zeros
  slice,           ///< each rank keeps its block
  pad,             ///< each rank has its block, and zeros elsewhere
  all_gather,      ///< every rank gets every block
  all_reduce,      ///< every rank gets the sum
  reduce_scatter,  ///< each rank gets its block of the sum
  all_to_all,      ///< each rank gets its block of another axis
  halo_exchange,   ///< each rank gets the elements that its windows read
  halo_sum,        ///< each rank gets its block of the sum of haloed parts
  halo_all_reduce  ///< every rank gets the whole sum of haloed parts
};

namespace detail {

constexpr bool exists(const LayoutValue& from, const LayoutValue& to) {
  using enum LayoutValue::Kind;
  const auto is_block_of = [](const LayoutValue& layout, const LayoutValue& halo) {
    return layout.kind == sharded && layout.axis == halo.axis;
  };
  if (from == to) return true;
  if (to.kind == haloed)
    return is_block_of(from, to) || from.kind == invariant || from.kind == replicated;
  if (from.kind == haloed_partial)
    return is_block_of(to, from) || to.kind == invariant || to.kind == partial;
  if (from.kind == haloed || to.kind == haloed_partial) return false;
  return !(from.kind == replicated && to.kind == partial);
}

constexpr Movement movement_of(const LayoutValue& from, const LayoutValue& to) {
  using enum LayoutValue::Kind;
  if (from == to) return Movement::none;
  if (to.kind == haloed && from.kind == sharded) return Movement::halo_exchange;
  if (from.kind == haloed_partial) {
    if (to.kind == sharded) return Movement::halo_sum;
    return to.kind == partial ? Movement::pad : Movement::halo_all_reduce;
  }
  if (from.kind == invariant || from.kind == replicated) {
    if (to.cuts()) return Movement::slice;
    return to.kind == partial ? Movement::keep_first : Movement::none;
  }
  if (from.kind == partial)
    return to.kind == sharded ? Movement::reduce_scatter : Movement::all_reduce;
  if (to.kind == sharded) return Movement::all_to_all;
  return to.kind == partial ? Movement::pad : Movement::all_gather;
}

}  // namespace detail
}  // namespace shardwise
