#pragma once
// The same block many times, each time with parameters of its own.

#include <cstddef>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/layers/stream.hpp"
#include "shardwise/model/decide.hpp"
#include "shardwise/model/extents.hpp"
#include "shardwise/model/layer_checks.hpp"

namespace shardwise {

/// block(block(...block(x))), N times. The stream is converted once, in front of the first block,
/// to a layout that the block brings back: `stream_t` of what the block gives and wants. All blocks
/// then have one type, which is compiled once.
/// throws   shape_error if the block gives another shape than it takes; where features are in the
///          types, that does not compile
template <std::size_t N, class Block>
class Repeat {
  static_assert(N > 0, "Repeat<N, Block> needs N of at least 1.");
  static_assert(detail::must_be_part<0, Block, 1>());

  /// One time through the block, from a stream laid out as L.
  template <Layout L, Layout Wanted>
  using after =
      stream_t<output_layout_at_t<Block, Ends<L, Wanted>>, desired_input_layout_t<Block, Wanted>>;

 public:
  using repeated_block = Block;            ///< tells a Repeat, also one derived from, from a layer
  static constexpr std::size_t times = N;  ///< how often the block stands in a row
  ///@{
  /// Features taken and given, `dynamic` where the types do not say.
  static constexpr std::size_t in_features = detail::static_features_in<Block>();
  static constexpr std::size_t out_features = detail::static_features_out<Block>(in_features);
  ///@}
  static_assert(detail::block_must_keep_features < Block, in_features,
                N == 1 ? in_features : out_features > ());

  ///@{
  /// What the whole would like to be given, takes and gives, as of a `Layer`.
  template <Layout Wanted>
  using desired_input_layout = desired_input_layout_t<Block, Wanted>;
  template <Layout Offered, Layout Wanted>
  using input_layout = after<stream_t<Offered, desired_input_layout_t<Block, Wanted>>,
                             desired_input_layout_t<Block, Wanted>>;
  template <Layout Offered, Layout Wanted>
  using output_layout_between = input_layout<Offered, Wanted>;
  ///@}

  /// The ends of every block when the stream is laid out as L.
  template <Layout L>
  using block_ends = Ends<L, desired_input_layout_t<Block, L>>;

  constexpr Repeat() requires detail::HasAllSizes<Block>
  = default;
  /// A block with sizes that are not in its type; all are made like it.
  constexpr explicit Repeat(const Block& block) : block_(block) {}

  /// The block that all are like.
  constexpr const Block& block() const { return block_; }
  /// Features that it takes, or `dynamic` if any number will do.
  constexpr std::size_t in() const { return detail::features_in(block_); }

  /// The shape of the output for an input of shape `in`. Throws shape_error if a block would give
  /// another shape than the next one takes.
  constexpr Shape output_shape(const Shape& in) const {
    const Shape out = block_.output_shape(in);
    if (N > 1 && in.rank() > 0 && !(in == out)) {
      throw shape_error({"a block that is repeated takes ", in, " and gives ", out,
                         ": the two shapes must be equal"});
    }
    return out;
  }

 private:
  [[no_unique_address]] Block block_;
};

}  // namespace shardwise
