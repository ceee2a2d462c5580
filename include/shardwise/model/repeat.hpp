#pragma once
// The same block many times, each time with its own parameters.

#include <cstddef>

#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/stream.hpp"
#include "shardwise/model/decide.hpp"
#include "shardwise/model/extents.hpp"
#include "shardwise/model/layer_checks.hpp"

namespace shardwise {

/// block(block(...block(x))), N times. The stream is converted once, before the first block, to a
/// layout that the block keeps: the `stream_t` of the layouts that the block gives and prefers. So
/// all blocks have one type, which is compiled once. N is in the type, or `dynamic`:
///
///     Repeat<12, Block>
///     Repeat(layers, block)        a Repeat<dynamic, Block>
///
/// throws   argument_error for a number of 0 at run time, or another than that of the type
///          shape_error if the block gives another shape than it takes; if the features are in the
///          types, this is an error of the compiler
template <std::size_t N, class Block>
class Repeat {
  static_assert(N > 0, "Repeat<N, Block> needs N of at least 1.");
  static_assert(detail::must_be_part<0, Block, 1>());

  /// One pass through the block, on a stream in the layout L.
  template <Layout L, Layout Wanted>
  using after = detail::stream_t<detail::output_layout_at_t<Block, Ends<L, Wanted>>,
                                 detail::desired_input_layout_t<Block, Wanted>>;

 public:
  using repeated_block = Block;  ///< marks a Repeat, also a type derived from one
  /// The number of the first block.
  static constexpr std::size_t first_number = 0;
  ///@{
  /// Features of the input and of the output, `dynamic` if the types do not have them.
  static constexpr std::size_t in_features = detail::static_features_in<Block>();
  static constexpr std::size_t out_features = detail::static_features_out<Block>(in_features);
  ///@}
  static_assert(detail::block_must_keep_features < Block, in_features,
                N == 1 ? in_features : out_features > ());

  ///@{
  /// The layouts of the whole, as in `Layer`.
  template <Layout Wanted>
  using desired_input_layout = detail::desired_input_layout_t<Block, Wanted>;
  template <Layout Offered, Layout Wanted>
  using input_layout =
      after<detail::stream_t<Offered, detail::desired_input_layout_t<Block, Wanted>>,
            detail::desired_input_layout_t<Block, Wanted>>;
  template <Layout Offered, Layout Wanted>
  using output_layout_between = input_layout<Offered, Wanted>;
  ///@}

  /// The ends of every block for a stream in the layout L.
  template <Layout L>
  using block_ends = Ends<L, detail::desired_input_layout_t<Block, L>>;

  constexpr Repeat() requires(detail::HasAllSizes<Block>&& N != dynamic) = default;
  /// A block whose sizes are not in its type; all blocks are made like it.
  constexpr explicit Repeat(const Block& block) requires(N != dynamic) : block_(block) {}
  /// A number of blocks at run time. Throws argument_error if it is 0, or not that of the type.
  constexpr Repeat(std::size_t times, const Block& block) : times_(times), block_(block) {
    if (times == 0) throw argument_error("Repeat: a block is repeated at least once, not 0 times");
    if (N != dynamic && times != N)
      throw argument_error({"Repeat: the type has ", N, " blocks, but ", times, " were asked for"});
  }

  /// The number of blocks.
  constexpr std::size_t times() const { return times_; }
  /// The block that all blocks are made like.
  constexpr const Block& block() const { return block_; }
  /// Features of its input, or `dynamic` if any number is allowed.
  constexpr std::size_t in() const { return detail::features_in(block_); }

  /// The shape of the output for an input of shape `in`. Throws shape_error if the output of a
  /// block has another shape than the next one takes.
  constexpr Shape output_shape(const Shape& in) const {
    const Shape out = block_.output_shape(in);
    if (times_ > 1 && in.rank() > 0 && !(in == out)) {
      throw shape_error({"a block that is repeated takes ", in, " and gives ", out,
                         ": the two shapes must be equal"});
    }
    return out;
  }

 private:
  std::size_t times_ = N;
  [[no_unique_address]] Block block_;
};

/// `Repeat(layers, block)` takes the number of blocks at run time.
template <class Block>
Repeat(std::size_t, const Block&) -> Repeat<dynamic, Block>;

namespace detail {

/// A Repeat<N, Block>. Throws as its constructor does.
template <std::size_t N, class Block>
constexpr Repeat<N, Block> repeated(std::size_t times, const Block& block) {
  return Repeat<N, Block>(times, block);
}

}  // namespace detail

}  // namespace shardwise
