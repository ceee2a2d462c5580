#pragma once
// A branch that computes nothing.

#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/stream.hpp"

namespace shardwise {

/// y = x: the branch of a Join that passes its input on unchanged.
/// layout   L -> L, for every L but Partial and Replicated
/// sends    nothing
struct Identity : KeepsStream {
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool reshapes = true;

  constexpr Shape output_shape(const Shape& x) const { return x; }
  ///@}
};

}  // namespace shardwise
