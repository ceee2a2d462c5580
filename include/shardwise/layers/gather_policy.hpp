#pragma once
// Gather policies: a redistribution that a model names explicitly.

#include "shardwise/layers/layer.hpp"

namespace shardwise {

/// Converts the stream to the layout L. The redistribution for this, and its adjoint in backward,
/// follow from the output of the layer before:
///
///     To<Invariant>                 after a column-parallel layer: all-gather
///     To<Invariant>                 after a row-parallel layer: all-reduce
///     To<Sharded<Axis::sequence>>   after a row-parallel layer: reduce-scatter over another axis
///
/// Without it an output stays sharded, and the next layer decides.
template <Layout L>
struct To : TakesAndGives<L, L> {
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  using along_other_axes = KeepsLayout;
  static constexpr bool reshapes = true;
  static constexpr bool keeps_shape = true;

  constexpr Shape output_shape(const Shape& in) const { return in; }
  ///@}
};

}  // namespace shardwise
