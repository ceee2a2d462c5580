#pragma once
// From images to features: the same memory with fewer axes.

#include <concepts>
#include <type_traits>

#include "shardwise/core/error.hpp"
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
struct Flatten {
  /// Whether every rank has whole planes of a tensor with this split.
  template <Layout L>
  static constexpr bool keeps_planes =
      std::same_as<L, Sharded<Axis::batch>> || std::same_as<L, Sharded<Axis::channel>>;

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool reshapes = true;

  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<std::same_as<Wanted, Sharded<Axis::feature>>,
                                                  Sharded<Axis::channel>, Wanted>;

  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<
      !ShardedLayout<Offered> || keeps_planes<Offered>, Offered,
      std::conditional_t<keeps_planes<Wanted> || std::same_as<Wanted, Invariant> ||
                             std::same_as<Wanted, Replicated>,
                         Wanted, Sharded<Axis::channel>>>;

  template <Layout In>
  using output_layout =
      std::conditional_t<std::same_as<In, Sharded<Axis::channel>>, Sharded<Axis::feature>, In>;

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
