#pragma once
// What tells a composition from a layer.

#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// A composition that lists its parts, see `Composition`.
template <class L>
concept ListsParts = requires {
  typename L::parts;
};

/// A composition that repeats one block, see `Repeat`.
template <class L>
concept RepeatsBlock = requires {
  typename L::repeated_block;
};

template <class L>
concept IsComposition = ListsParts<L> || RepeatsBlock<L>;

///@{
/// How many tensors an architecture takes and gives.
template <class L>
inline constexpr std::size_t input_count_of = 1;
template <ListsParts L>
inline constexpr std::size_t input_count_of<L> = L::inputs;
template <class L>
inline constexpr std::size_t output_count_of = 1;
template <ListsParts L>
inline constexpr std::size_t output_count_of<L> = L::outputs;
///@}

}  // namespace shardwise::detail
