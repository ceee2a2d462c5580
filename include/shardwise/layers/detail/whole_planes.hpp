#pragma once
// The layouts of layers that make features of an axis and all axes behind it.

#include <array>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise::detail {

/// Whether axis a stands in front of axis b, in images and in sequences.
constexpr bool is_in_front(Axis a, Axis b) {
  constexpr std::array order{Axis::batch,  Axis::sequence, Axis::channel, Axis::depth,
                             Axis::height, Axis::width,    Axis::feature};
  std::size_t at = 0;
  while (at < order.size() && order[at] != a) ++at;
  for (++at; at < order.size(); ++at) {
    if (order[at] == b) return true;
  }
  return false;
}

template <Layout L, Axis A>
inline constexpr bool splits_in_front = false;
template <Axis B, Axis A>
inline constexpr bool splits_in_front<Sharded<B>, A> = is_in_front(B, A);

/// Sharded<A> -> Sharded<feature>;   L -> L for Invariant, Replicated, Partial and splits of an
/// axis in front of A. A split of an axis behind A would cut features into separate pieces, and
/// becomes the preferred layout among these, or Sharded<A>.
template <Axis A>
struct WholeFrom {
  /// Whether every rank has all elements behind A of those of A that it has.
  template <Layout L>
  static constexpr bool keeps_planes = std::same_as<L, Sharded<A>> || splits_in_front<L, A>;

  ///@{
  /// As `Layer` says.
  template <Layout Wanted>
  using desired_input_layout =
      std::conditional_t<std::same_as<Wanted, Sharded<Axis::feature>>, Sharded<A>, Wanted>;

  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<
      !ShardedLayout<Offered> || keeps_planes<Offered>, Offered,
      std::conditional_t<keeps_planes<Wanted> || std::same_as<Wanted, Invariant> ||
                             std::same_as<Wanted, Replicated>,
                         Wanted, Sharded<A>>>;

  template <Layout In>
  using output_layout =
      std::conditional_t<std::same_as<In, Sharded<A>>, Sharded<Axis::feature>, In>;
  ///@}
};

/// Whole planes of channels.
using WholePlanes = WholeFrom<Axis::channel>;

}  // namespace shardwise::detail
