#pragma once
// A block that saves its input alone, and goes forward again in backward.

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "shardwise/model/composition.hpp"
#include "shardwise/model/decide.hpp"

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
/// layout   that of the block. x is saved in the layout in which the block takes it; if the block
///          would convert even that, as a convolution that adds halos, x is saved as it is offered
/// saves    x
/// sends    forward what the block sends; backward the same once more, and then what the block
///          sends backward
/// throws   as the block
/// source   Chen et al. 2016, "Training deep nets with sublinear memory cost"
template <class Block>
class Recompute : public detail::Alone<Block> {
  using List = detail::Alone<Block>;

  template <Layout Offered, Layout Wanted>
  using taken = input_layout_at_t<Block, Ends<Offered, Wanted>>;

 public:
  using recomputed = List;  ///< marks a Recompute, also a type derived from one

  ///@{
  /// As `Composition` says, with x in the layout in which it is saved.
  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<
      std::same_as<taken<taken<Offered, Wanted>, Wanted>, taken<Offered, Wanted>>,
      taken<Offered, Wanted>, Offered>;
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
