#pragma once
// How one global tensor lies over the ranks of a mesh axis. Pure types: no sizes, no rank counts.

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include "shardwise/core/shape.hpp"

namespace shardwise {

/// Every rank holds the same value and does the same with it.
struct Invariant {};

/// Every rank holds the same value and uses it for a share of its own, so the gradient that a rank
/// computes is one summand of the whole.
struct Replicated {};

/// Every rank holds a summand; the value is their sum over the ranks.
struct Partial {};

/// Every rank holds one block of a named axis, see `block_of`.
template <Axis A>
struct Sharded {
  static constexpr Axis axis = A;
};

namespace detail {
template <class L>
inline constexpr bool is_sharded = false;
template <Axis A>
inline constexpr bool is_sharded<Sharded<A>> = true;

template <class L>
struct dual {
  using type = L;
};
template <>
struct dual<Replicated> {
  using type = Partial;
};
template <>
struct dual<Partial> {
  using type = Replicated;
};
}  // namespace detail

template <class L>
concept ShardedLayout = detail::is_sharded<L>;

/// A layout: `Invariant`, `Replicated`, `Partial` or `Sharded<Axis>`.
/// valid: `Partial`, `Sharded<Axis::batch>`      invalid: `int`, `Axis`, `const Partial`
template <class L>
concept Layout = std::same_as<L, Invariant> || std::same_as<L, Replicated> ||
    std::same_as<L, Partial> || ShardedLayout<L>;

/// The layout of the gradient of a tensor laid out as L. `dual_t<dual_t<L>>` is L.
template <Layout L>
using dual_t = typename detail::dual<L>::type;

/// "Sharded<feature>", for messages.
template <Layout L>
std::string layout_name() {
  if constexpr (std::same_as<L, Invariant>) return "Invariant";
  if constexpr (std::same_as<L, Replicated>) return "Replicated";
  if constexpr (std::same_as<L, Partial>) return "Partial";
  if constexpr (ShardedLayout<L>) return "Sharded<" + std::string(name(L::axis)) + '>';
}

}  // namespace shardwise
