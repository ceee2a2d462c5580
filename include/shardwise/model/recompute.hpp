#pragma once
// A block that saves its input alone, and goes forward again in backward.

#include <cstddef>

#include "shardwise/model/composition.hpp"

namespace shardwise {

namespace detail {

/// Block as a composition of one part, whose parameters have the names of the block.
template <class Block>
class Alone : public Composition<At<Block, 0>> {
 public:
  static constexpr bool numbers_parts = false;
  using Composition<At<Block, 0>>::Composition;
};

}  // namespace detail

/// Activation recomputation, also called gradient checkpointing: y = block(x), which saves x alone.
/// Backward runs the block forward again, and then backward. So memory for saved values shrinks
/// from those of all blocks to the inputs of all blocks and the values of one, for one more forward
/// of each block; `memory_of` tells how much.
///
///     Repeat<24, Recompute<Block>>
///
/// Values, gradients, masks and running statistics have the bits that they have without Recompute:
/// the second forward draws the same random numbers, and leaves running statistics as they are.
/// Evaluation runs the block once, and so does a block in which nothing runs backward.
///
/// If the first layer of the block is column-parallel, the ranks sum the gradient of x after the
/// whole backward of the block: on a communicator whose collectives go on by themselves, this one
/// does not overlap with the gradients of parameters. In a block that is a `Residual` of such
/// layers the sum is inside the block, and overlaps.
///
/// layout   that of the block. x is saved in the layout in which the block takes it: with halos, if
///          its first layer reads them
/// saves    x
/// sends    forward what the block sends; backward the same once more, and then what the block
///          sends backward
/// throws   as the block
/// source   Chen et al. 2016, "Training deep nets with sublinear memory cost"
template <class Block>
class Recompute : public detail::Alone<Block> {
  using List = detail::Alone<Block>;

 public:
  using recomputed = List;  ///< marks a Recompute, also a type derived from one

  ///@{
  /// As `Composition` says, with x in the layout in which it is saved.
  template <Layout Offered, Layout Wanted>
  using input_layout = typename List::template input_layout<Offered, Wanted>;
  template <Layout Offered, Layout Wanted>
  using output_layout_between =
      typename List::template output_layout_between<input_layout<Offered, Wanted>, Wanted>;
  template <std::size_t Index, Layout Offered, Layout Wanted>
  using ends_of = typename List::template ends_of<Index, input_layout<Offered, Wanted>, Wanted>;
  template <std::size_t Slot, Layout Offered, Layout Wanted>
  using slot_layout =
      typename List::template slot_layout<Slot, input_layout<Offered, Wanted>, Wanted>;
  ///@}

  constexpr Recompute() requires detail::HasAllSizes<Block>
  = default;
  /// A block whose sizes are not in its type.
  constexpr explicit Recompute(const Block& block) : List(block) {}
};

}  // namespace shardwise
