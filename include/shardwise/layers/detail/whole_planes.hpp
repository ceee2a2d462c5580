#pragma once
// The layouts of layers that make features of the channels of images.

#include <concepts>
#include <type_traits>

#include "shardwise/layers/layer.hpp"

namespace shardwise::detail {

/// Sharded<channel> -> Sharded<feature>;   L -> L for Invariant, Replicated, Partial and
/// Sharded<batch>. Any other split would cut planes, and becomes the preferred layout among these,
/// or Sharded<channel>.
struct WholePlanes {
  /// Whether every rank has whole planes of a tensor with this split.
  template <Layout L>
  static constexpr bool keeps_planes =
      std::same_as<L, Sharded<Axis::batch>> || std::same_as<L, Sharded<Axis::channel>>;

  ///@{
  /// As `Layer` says.
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
  ///@}
};

}  // namespace shardwise::detail
