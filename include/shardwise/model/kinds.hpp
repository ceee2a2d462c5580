#pragma once
// Concepts that distinguish compositions from layers.

#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// A composition that lists its parts, see `Composition`.
template <class L>
concept ListsParts = requires {
  typename L::parts;
};

/// A composition of several inputs, see `Graph`.
template <class L>
concept ReadsSeveral = ListsParts<L> &&(L::inputs > 1);

/// A composition that repeats one block, see `Repeat`.
template <class L>
concept RepeatsBlock = requires {
  typename L::repeated_block;
};

/// A composition of one block that runs forward again in backward, see `Recompute`.
template <class L>
concept Recomputes = ListsParts<L> && requires {
  typename L::recomputed;
};

template <class L>
concept IsComposition = ListsParts<L> || RepeatsBlock<L>;

///@{
/// The number of an architecture's inputs, and of its outputs.
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
