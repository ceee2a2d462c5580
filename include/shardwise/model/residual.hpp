#pragma once
// A block whose result is added to its input.

#include <concepts>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/model/decide.hpp"
#include "shardwise/model/extents.hpp"
#include "shardwise/model/layer_checks.hpp"

namespace shardwise {

/// The layout of a stream that passes through blocks: a Partial becomes what is wanted if that is
/// sharded, else Invariant, as does a Replicated; anything else stays as it is.
template <Layout Offered, Layout Wanted>
using stream_t =
    std::conditional_t<std::same_as<Offered, Partial>,
                       std::conditional_t<ShardedLayout<Wanted>, Wanted, Invariant>,
                       std::conditional_t<std::same_as<Offered, Replicated>, Invariant, Offered>>;

/// y = x + block(x). The stream keeps its layout: x is converted once, before it branches, and the
/// block's result is brought to the same layout before it is added.
/// throws   shape_error if the block gives another shape than it takes; where features are in the
///          types, that does not compile
template <class Block>
class Residual {
 public:
  using residual_block = Block;  ///< tells a Residual, also one derived from, from a layer

  ///@{
  /// Features taken and given, `dynamic` where the types do not say.
  static constexpr std::size_t in_features = detail::static_features_in<Block>();
  static constexpr std::size_t out_features = in_features;
  ///@}
  static_assert(detail::block_must_keep_features<
                Block, in_features, detail::static_features_out<Block>(in_features)>());

  ///@{
  /// What the whole would like to be given, takes and gives, as of a `Layer`.
  template <Layout Wanted>
  using wants = stream_t<Wanted, Invariant>;
  template <Layout Offered, Layout Wanted>
  using takes = stream_t<Offered, Wanted>;
  template <Layout Offered, Layout Wanted>
  using gives_between = stream_t<Offered, Wanted>;
  ///@}

  constexpr Residual() requires detail::HasAllSizes<Block>
  = default;
  /// A block with sizes that are not in its type.
  constexpr explicit Residual(const Block& block) : block_(block) {}

  /// What is added to the input.
  constexpr const Block& block() const { return block_; }
  /// Features that it takes, or `dynamic` if any number will do.
  constexpr std::size_t in() const { return detail::features_in(block_); }

  /// The shape of the output for an input of shape `in`. Throws shape_error if the block gives
  /// another one.
  constexpr Shape output_shape(const Shape& in) const {
    const Shape out = block_.output_shape(in);
    if (in.rank() > 0 && !(in == out)) {
      throw shape_error({"a residual adds its input ", in, " to what its block gives, ", out,
                         ": the two shapes must be equal"});
    }
    return in.rank() > 0 ? in : out;
  }

 private:
  [[no_unique_address]] Block block_;
};

}  // namespace shardwise
