#pragma once
// Layouts of a global tensor over the ranks of a mesh axis. Pure types: no sizes, no rank counts.

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include "shardwise/core/shape.hpp"
#include "shardwise/layout/window.hpp"

namespace shardwise {

/// Every rank holds the same value and computes the same with it.
struct Invariant {};

/// Every rank holds the same value and uses it for its own share of the work, so the gradient on
/// each rank is one summand of the whole.
struct Replicated {};

/// Every rank holds a summand; the value is their sum over the ranks.
struct Partial {};

/// Every rank holds one block of a named axis, see `block_of`.
template <Axis A>
struct Sharded {
  static constexpr Axis axis = A;  ///< that is cut
};

/// Every rank holds the elements that a window along a named axis reads for the rank's block of
/// outputs: about its own block, and a halo from its neighbours. See `Window::held_by`.
template <Axis A, Window W>
struct Haloed {
  static constexpr Axis axis = A;      ///< that is cut
  static constexpr Window window = W;  ///< that slides along it
};

/// Every rank holds summands of those elements; the value is their sum over the ranks.
template <Axis A, Window W>
struct HaloedPartial {
  static constexpr Axis axis = A;      ///< that is cut
  static constexpr Window window = W;  ///< that slides along it
};

namespace detail {
template <class L>
inline constexpr bool is_sharded = false;
template <Axis A>
inline constexpr bool is_sharded<Sharded<A>> = true;

template <class L>
inline constexpr bool is_haloed = false;
template <Axis A, Window W>
inline constexpr bool is_haloed<Haloed<A, W>> = true;

template <class L>
inline constexpr bool is_haloed_partial = false;
template <Axis A, Window W>
inline constexpr bool is_haloed_partial<HaloedPartial<A, W>> = true;

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
template <Axis A, Window W>
struct dual<Haloed<A, W>> {
  using type = HaloedPartial<A, W>;
};
template <Axis A, Window W>
struct dual<HaloedPartial<A, W>> {
  using type = Haloed<A, W>;
};
}  // namespace detail

/// `Sharded<Axis>` of any axis.
template <class L>
concept ShardedLayout = detail::is_sharded<L>;

/// `Haloed<Axis, Window>` of any axis and window.
template <class L>
concept HaloedLayout = detail::is_haloed<L>;

/// `HaloedPartial<Axis, Window>` of any axis and window.
template <class L>
concept HaloedPartialLayout = detail::is_haloed_partial<L>;

/// A layout by which a rank holds a part of one axis.
template <class L>
concept SplitLayout = ShardedLayout<L> || HaloedLayout<L> || HaloedPartialLayout<L>;

/// A layout: `Invariant`, `Replicated`, `Partial`, `Sharded<Axis>`, `Haloed<Axis, Window>` or
/// `HaloedPartial<Axis, Window>`.
/// valid: `Partial`, `Sharded<Axis::batch>`      invalid: `int`, `Axis`, `const Partial`
template <class L>
concept Layout = std::same_as<L, Invariant> || std::same_as<L, Replicated> ||
    std::same_as<L, Partial> || SplitLayout<L>;

/// The layout of the gradient of a tensor laid out as L. `dual_t<dual_t<L>>` is L.
template <Layout L>
using dual_t = typename detail::dual<L>::type;

/// "Sharded<feature>", "Haloed<height, kernel 3 stride 2 padding 1+1>", for messages.
template <Layout L>
std::string layout_name() {
  if constexpr (SplitLayout<L> && !ShardedLayout<L>) {
    return (HaloedLayout<L> ? "Haloed<" : "HaloedPartial<") + std::string(name(L::axis)) + ", " +
           to_string(L::window) + '>';
  }
  if constexpr (std::same_as<L, Invariant>) return "Invariant";
  if constexpr (std::same_as<L, Replicated>) return "Replicated";
  if constexpr (std::same_as<L, Partial>) return "Partial";
  if constexpr (ShardedLayout<L>) return "Sharded<" + std::string(name(L::axis)) + '>';
}

}  // namespace shardwise
