#pragma once
// How ranks share the work of a transformer.

#include "shardwise/layers/split.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// Each rank has its heads, and its features of the perceptron or its experts.
struct TensorParallel {
  using first = split::output;            ///< of the layers that make heads and hidden features
  using second = split::input;            ///< of the layers behind them
  using stream = Invariant;               ///< layout of the values between blocks
  using experts = split::expert;          ///< of a mixture of experts
  using ids = Invariant;                  ///< layout of token ids
  using logits = Sharded<Axis::feature>;  ///< layout of the result
};

/// As TensorParallel, but between blocks each rank has its tokens.
struct SequenceParallel : TensorParallel {
  using stream = Sharded<Axis::sequence>;  ///< see TensorParallel
};

/// Each rank has its tokens everywhere, and all parameters.
struct ContextParallel {
  ///@{
  /// See TensorParallel.
  using first = split::none;
  using second = split::none;
  using experts = split::none;
  using stream = Sharded<Axis::sequence>;
  using ids = Sharded<Axis::sequence>;
  using logits = Sharded<Axis::sequence>;
  ///@}
};

}  // namespace shardwise
