#pragma once
// From images to features: the same memory with fewer axes.

#include <cstddef>

#include "shardwise/core/error.hpp"
#include "shardwise/layers/detail/whole_planes.hpp"
#include "shardwise/layers/layer.hpp"

namespace shardwise {

/// [batch, channel, ...] -> [batch, feature], with one unit for each channel; the grain is the size
/// of a plane. So shards are whole planes, and a row-parallel layer after this one needs no
/// redistribution.
/// layout   Sharded<channel> -> Sharded<feature>;   L -> L for Invariant, Replicated, Partial,
///          Sharded<batch>;   any other split, such as by height, would cut features into separate
///          pieces: it becomes the preferred layout among these, or Sharded<channel> (all-to-all)
/// sends    nothing
/// throws   shape_error if x does not begin with batch and channel
struct Flatten : detail::WholePlanes {
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool reshapes = true;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    if (x.rank() < 2 || x[0].axis != Axis::batch || x[1].axis != Axis::channel) {
      throw shape_error({"the input is a tensor ", x, ", but Flatten takes [batch, channel, ...]"});
    }
    for (std::size_t i = 1; i < x.rank(); ++i) {
      if (!x[i].known()) return Shape{x[0], {Axis::feature, dynamic}};
    }
    const std::size_t plane = x[1].grain * x.elements(2, x.rank());
    return Shape{x[0], {Axis::feature, x[1].units, plane}};
  }
  ///@}
};

}  // namespace shardwise
