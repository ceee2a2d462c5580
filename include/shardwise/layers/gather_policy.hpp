#pragma once
// Gather policies: a redistribution written into the model, where its author wants it.

#include "shardwise/layers/layer.hpp"

namespace shardwise {

/// Lays the stream out as L from here on. The redistribution that this needs, and its adjoint in
/// backward, follow from what the layer before gives:
///
///     To<Invariant>                 behind a column-parallel layer: all-gather
///     To<Invariant>                 behind a row-parallel layer: all-reduce
///     To<Sharded<Axis::sequence>>   behind a row-parallel layer: reduce-scatter over another axis
///
/// Leave it out to keep an output sharded, and the next layer decides.
template <Layout L>
struct To {
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool reshapes = true;
  static constexpr bool keeps_shape = true;

  template <Layout Wanted>
  using desired_input_layout = L;
  template <Layout Offered, Layout Wanted>
  using input_layout = L;
  template <Layout In>
  using output_layout = In;

  constexpr Shape output_shape(const Shape& in) const { return in; }
  ///@}
};

}  // namespace shardwise
