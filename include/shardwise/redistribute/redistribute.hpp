#pragma once
// From one layout to another: which pairs exist, what each one does, and the adjoint law.

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "shardwise/comm/call.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// What a redistribution does with the elements.
enum class Movement : std::uint8_t {
  none,            ///< the same memory is read as the other layout
  keep_first,      ///< the first rank keeps its elements, the others have zeros
  slice,           ///< each rank keeps its block
  pad,             ///< each rank has its block among zeros
  all_gather,      ///< every rank gets every block
  all_reduce,      ///< every rank gets the sum
  reduce_scatter,  ///< each rank gets its block of the sum
  all_to_all       ///< each rank gets its block of another axis
};

/// Whether a redistribution From -> To exists. Every pair but one does: the gradient of
/// `Replicated -> Partial` would have to be the same pair again, and neither "first rank keeps" nor
/// "divide by the number of ranks" is.
template <Layout From, Layout To>
inline constexpr bool redistributable =
    !(std::same_as<From, Replicated> && std::same_as<To, Partial>);

namespace detail {

template <Layout From, Layout To>
consteval Movement movement_of() {
  constexpr bool same_everywhere = std::same_as<From, Invariant> || std::same_as<From, Replicated>;
  if (std::same_as<From, To>) return Movement::none;
  if (same_everywhere) {
    if (ShardedLayout<To>) return Movement::slice;
    return std::same_as<To, Partial> ? Movement::keep_first : Movement::none;
  }
  if (std::same_as<From, Partial>) {
    return ShardedLayout<To> ? Movement::reduce_scatter : Movement::all_reduce;
  }
  if (ShardedLayout<To>) return Movement::all_to_all;
  return std::same_as<To, Partial> ? Movement::pad : Movement::all_gather;
}

/// Nothing but the error: a `Redistribute` that does not exist stops here, with this sentence.
template <Layout From, Layout To>
consteval bool must_be_redistributable() {
  static_assert(redistributable<From, To>,
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

  using from = From;
  using to = To;

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
      default:
        return std::nullopt;
    }
  }
};

namespace detail {
template <class R>
struct adjoint;
template <Layout From, Layout To>
struct adjoint<Redistribute<From, To>> {
  using type = Redistribute<dual_t<To>, dual_t<From>>;
};
}  // namespace detail

/// The law: what a redistribution does to gradients is the redistribution between the duals, read
/// backwards. With inner products taken on the global tensor, <R x, y> == <x, adjoint(R) y>.
template <class R>
using adjoint_t = typename detail::adjoint<R>::type;

}  // namespace shardwise
