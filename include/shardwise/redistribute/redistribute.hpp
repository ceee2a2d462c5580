#pragma once
// Redistributions: which pairs of layouts have one, what each does, and the adjoint law.

#include <cstdint>
#include <optional>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/redistribute/mesh_steps.hpp"
#include "shardwise/redistribute/movement.hpp"

namespace shardwise {

/// Whether a redistribution From -> To exists. Without halos every pair but one does: the adjoint
/// of `Replicated -> Partial` would be the same pair, but neither "first rank keeps" nor "divide by
/// the number of ranks" is its own adjoint. `Haloed` exists only from a split of its axis or from a
/// tensor that every rank holds, and only its layer reads it; for its dual the directions are
/// reversed.
///
/// Over a mesh it exists if it exists along each axis, and if there is an order of these steps in
/// which a cut of a tensor axis is put on and taken off only if no inner mesh axis cuts the same
/// tensor axis. A window reads along no axis that another mesh axis cuts.
template <Layout From, Layout To>
inline constexpr bool redistributable = detail::exists(detail::layout_value<From>,
                                                       detail::layout_value<To>);

namespace detail {

/// Why a redistribution does not exist, if it does not.
enum class Missing : std::uint8_t { nothing, halo, order, summands };

constexpr Missing why_missing(const MeshLayoutValue& from, const MeshLayoutValue& to) {
  if (MeshChange{from, to}.cuts_a_halo()) return Missing::halo;
  if (exists_along_each(from, to)) return Missing::order;
  for (const MeshAxis axis : mesh_axes)
    if (!exists(from[axis], to[axis]) && (from[axis].has_halo() || to[axis].has_halo()))
      return Missing::halo;
  return Missing::summands;
}

/// Only the error: a `Redistribute` that does not exist stops the compiler here.
template <Layout From, Layout To>
consteval bool must_be_redistributable() {
  constexpr Missing why = redistributable<From, To>
                              ? Missing::nothing
                              : why_missing(layout_value<From>, layout_value<To>);
  static_assert(why != Missing::halo,
                "there is no redistribution from From to To: a Haloed tensor is made of one that "
                "is split along the same axis, or that every rank holds, and no other mesh axis "
                "cuts that axis. Go through Sharded<Axis> of the window's axis.");
  static_assert(why != Missing::order,
                "there is no redistribution from From to To: several mesh axes cut one axis of the "
                "tensor, and the cut of an outer mesh axis can change only while no inner one "
                "(see MeshAxis) cuts the same axis. Take the inner cut off first, and put it on "
                "again after.");
  static_assert(why != Missing::summands,
                "there is no redistribution from From to To: ranks that hold the same value for "
                "shares of their own have no summands to give. Go through Invariant "
                "(Replicated -> Invariant -> Partial), which says that the first rank keeps it.");
  return true;
}

}  // namespace detail

/// One gather policy. `From -> To` on any axis, dtype and number of ranks.
///
///     Redistribute<Partial, Invariant>                  all-reduce
///     Redistribute<Sharded<Axis::feature>, Replicated>  all-gather
template <Layout From, Layout To>
struct Redistribute {
  static_assert(detail::must_be_redistributable<From, To>());

  using from = From;  ///< the layout of the input
  using to = To;      ///< the layout of the result

  /// Its operation on the elements.
  static constexpr Movement movement =
      detail::movement_of(detail::layout_value<From>, detail::layout_value<To>);

  /// The collective that it calls, if it communicates.
  static constexpr std::optional<Operation> operation() {
    switch (movement) {
      case Movement::all_gather:
        return Operation::all_gather;
      case Movement::all_reduce:
        return Operation::all_reduce;
      case Movement::reduce_scatter:
        return Operation::reduce_scatter;
      case Movement::all_to_all:
        return Operation::all_to_all;
      case Movement::halo_exchange:
        return Operation::halo_exchange;
      case Movement::halo_sum:
        return Operation::halo_sum;
      case Movement::halo_all_reduce:
        return Operation::all_reduce;
      default:
        return std::nullopt;
    }
  }
};

/// From or To is a layout over a mesh: one step along each mesh axis whose layout changes, and each
/// is a redistribution over the ranks along that axis, of the part of the tensor that their places
/// along the other axes leave. What makes the parts smaller comes first, and what makes them larger
/// last. Any order of the steps that exists gives the same elements, up to the rounding of sums.
///
///     Redistribute<Over<On<data, Partial>, On<tensor, Sharded<Axis::feature>>>,
///                  Over<On<data, Sharded<Axis::batch>>>>   // reduce-scatter, then all-gather
template <Layout From, Layout To>
requires(detail::MeshLayout<From> || detail::MeshLayout<To>) struct Redistribute<From, To> {
  static_assert(detail::must_be_redistributable<From, To>());

  using from = From;  ///< the layout of the input
  using to = To;      ///< the layout of the result

  /// The mesh axes along which the layout changes, in the order of the steps.
  static constexpr detail::MeshSteps steps =
      detail::steps_of(detail::layout_value<From>, detail::layout_value<To>);

  /// The step along a mesh axis.
  template <MeshAxis A>
  using along = Redistribute<detail::along_t<From, A>, detail::along_t<To, A>>;
};

namespace detail {

/// Whether, on so many ranks, each rank holds the same elements in both layouts of R, so that R
/// sends nothing: a window that reads no unit of a neighbour, such as that of query heads whose key
/// heads are on the same rank. All ranks find the same.
template <class R>
constexpr bool stays_in_place(const Shape& shape, int ranks) {
  if constexpr (R::movement == Movement::halo_exchange || R::movement == Movement::halo_sum) {
    const Dim& dim = shape[detail::split_position<typename R::from>(shape)];
    for (int rank = 0; rank < ranks; ++rank) {
      const Place place{rank, ranks};
      const Interval before = detail::held_interval<typename R::from>(dim, place);
      const Interval after = detail::held_interval<typename R::to>(dim, place);
      if (before.size != after.size || (before.size > 0 && before.offset != after.offset))
        return false;
    }
    return true;
  } else {
    return false;
  }
}

template <class R>
struct adjoint;
template <Layout From, Layout To>
struct adjoint<Redistribute<From, To>> {
  using type = Redistribute<dual_t<To>, dual_t<From>>;
};
}  // namespace detail

/// The law: the adjoint of a redistribution goes between the duals, in the other direction. With
/// inner products on the global tensor, <R x, y> == <x, adjoint(R) y>.
template <class R>
using adjoint_t = typename detail::adjoint<R>::type;

}  // namespace shardwise
