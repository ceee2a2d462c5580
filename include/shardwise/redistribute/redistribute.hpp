#pragma once
// Redistributions: which pairs of layouts have one, what each does, and the adjoint law.

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/local_shape.hpp"

namespace shardwise {

/// The operation of a redistribution on the elements.
enum class Movement : std::uint8_t {
  none,            ///< the same memory has the other layout
  keep_first,      ///< the first rank keeps its elements, the others have zeros
  slice,           ///< each rank keeps its block
  pad,             ///< each rank has its block, and zeros elsewhere
  all_gather,      ///< every rank gets every block
  all_reduce,      ///< every rank gets the sum
  reduce_scatter,  ///< each rank gets its block of the sum
  all_to_all,      ///< each rank gets its block of another axis
  halo_exchange,   ///< each rank gets the elements that its windows read
  halo_sum,        ///< each rank gets its block of the sum of haloed parts
  halo_all_reduce  ///< every rank gets the whole sum of haloed parts
};

namespace detail {

template <Layout From, Layout To>
consteval bool exists() {
  if constexpr (std::same_as<From, To>) {
    return true;
  } else if constexpr (HaloedLayout<To>) {
    return std::same_as<From, Sharded<To::axis>> || std::same_as<From, Invariant> ||
           std::same_as<From, Replicated>;
  } else if constexpr (HaloedPartialLayout<From>) {
    return std::same_as<To, Sharded<From::axis>> || std::same_as<To, Invariant> ||
           std::same_as<To, Partial>;
  } else if constexpr (HaloedLayout<From> || HaloedPartialLayout<To>) {
    return false;
  } else {
    return !(std::same_as<From, Replicated> && std::same_as<To, Partial>);
  }
}

}  // namespace detail

/// Whether a redistribution From -> To exists. Without halos every pair but one does: the adjoint
/// of `Replicated -> Partial` would be the same pair, but neither "first rank keeps" nor "divide by
/// the number of ranks" is its own adjoint. `Haloed` exists only from a split of its axis or from a
/// tensor that every rank holds, and only its layer reads it; for its dual the directions are
/// reversed.
template <Layout From, Layout To>
inline constexpr bool redistributable = detail::exists<From, To>();

namespace detail {

template <Layout From, Layout To>
consteval Movement movement_of() {
  constexpr bool same_everywhere = std::same_as<From, Invariant> || std::same_as<From, Replicated>;
  if (std::same_as<From, To>) return Movement::none;
  if (HaloedLayout<To> && ShardedLayout<From>) return Movement::halo_exchange;
  if (HaloedPartialLayout<From>) {
    if (ShardedLayout<To>) return Movement::halo_sum;
    return std::same_as<To, Partial> ? Movement::pad : Movement::halo_all_reduce;
  }
  if (same_everywhere) {
    if (SplitLayout<To>) return Movement::slice;
    return std::same_as<To, Partial> ? Movement::keep_first : Movement::none;
  }
  if (std::same_as<From, Partial>) {
    return ShardedLayout<To> ? Movement::reduce_scatter : Movement::all_reduce;
  }
  if (ShardedLayout<To>) return Movement::all_to_all;
  return std::same_as<To, Partial> ? Movement::pad : Movement::all_gather;
}

/// Only the error: a `Redistribute` that does not exist stops the compiler here.
template <Layout From, Layout To>
consteval bool must_be_redistributable() {
  constexpr bool has_halo = HaloedLayout<From> || HaloedLayout<To> || HaloedPartialLayout<From> ||
                            HaloedPartialLayout<To>;
  static_assert(redistributable<From, To> || !has_halo,
                "there is no redistribution from From to To: a Haloed tensor is made of one that "
                "is split along the same axis, or that every rank holds. Go through Sharded<Axis> "
                "of the window's axis.");
  static_assert(redistributable<From, To> || has_halo,
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
  static constexpr Movement movement = detail::movement_of<From, To>();

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

/// Whether, on so many ranks, each rank holds the same elements in both layouts of R, so that R
/// sends nothing: a window that reads no unit of a neighbour, such as that of query heads whose key
/// heads are on the same rank. All ranks find the same.
template <class R>
constexpr bool stays_in_place(const Shape& shape, int ranks) {
  if constexpr (R::movement == Movement::halo_exchange || R::movement == Movement::halo_sum) {
    const Dim& dim = shape[split_position<typename R::from>(shape)];
    for (int rank = 0; rank < ranks; ++rank) {
      const Place place{rank, ranks};
      const Interval before = held_interval<typename R::from>(dim, place);
      const Interval after = held_interval<typename R::to>(dim, place);
      if (before.size != after.size || (before.size > 0 && before.offset != after.offset))
        return false;
    }
    return true;
  } else {
    return false;
  }
}

namespace detail {
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
