#pragma once
// A block whose output is added to its input.

#include "shardwise/model/composition.hpp"
#include "shardwise/model/sum.hpp"

namespace shardwise {

/// y = x + block(x). The stream keeps its layout: x is converted once, before the branch, and the
/// block's output is converted to the same layout before the addition.
/// throws   shape_error if the block gives another shape than it takes; if the features are in the
///          types, this is an error of the compiler
template <class Block>
class Residual : public Composition<At<Block, 0>, At<Sum, 0, 1>> {
  using List = Composition<At<Block, 0>, At<Sum, 0, 1>>;
  static_assert(detail::block_must_keep_features<Block, detail::static_features_in<Block>(),
                                                 List::features[1]>());

 public:
  static constexpr bool numbers_parts = false;  ///< parameters have the names of the block

  constexpr Residual() requires detail::HasAllSizes<Block>
  = default;
  /// A block whose sizes are not in its type.
  constexpr explicit Residual(const Block& block) : List(block, Sum{}) {}
};

}  // namespace shardwise
