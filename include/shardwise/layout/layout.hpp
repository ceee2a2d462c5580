#pragma once
// Layouts of a global tensor over ranks. Pure types: no sizes, no rank counts.

#include <concepts>
#include <string>

#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout_value.hpp"
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

/// Layouts along several axes of a mesh; see `Over`, which alone names it.
template <class... Ons>
struct Product;

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
inline constexpr bool is_product = false;
template <class... Ons>
inline constexpr bool is_product<Product<Ons...>> = true;

/// L as a value.
template <class L>
inline constexpr LayoutValue layout_value{LayoutValue::Kind::invariant};
template <>
inline constexpr LayoutValue layout_value<Replicated>{LayoutValue::Kind::replicated};
template <>
inline constexpr LayoutValue layout_value<Partial>{LayoutValue::Kind::partial};
template <Axis A>
inline constexpr LayoutValue layout_value<Sharded<A>>{LayoutValue::Kind::sharded, A};
template <Axis A, Window W>
inline constexpr LayoutValue layout_value<Haloed<A, W>>{LayoutValue::Kind::haloed, A, W};
template <Axis A, Window W>
inline constexpr LayoutValue layout_value<HaloedPartial<A, W>>{LayoutValue::Kind::haloed_partial, A,
                                                               W};

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

namespace detail {

/// `HaloedPartial<Axis, Window>` of any axis and window.
template <class L>
concept HaloedPartialLayout = detail::is_haloed_partial<L>;

/// A layout by which a rank holds a part of one axis.
template <class L>
concept SplitLayout = ShardedLayout<L> || HaloedLayout<L> || HaloedPartialLayout<L>;

}  // namespace detail

/// A layout over one axis of ranks: `Invariant`, `Replicated`, `Partial`, `Sharded<Axis>`,
/// `Haloed<Axis, Window>` or `HaloedPartial<Axis, Window>`.
/// valid: `Partial`, `Sharded<Axis::batch>`      invalid: `int`, `Axis`, `const Partial`
template <class L>
concept PlainLayout = std::same_as<L, Invariant> || std::same_as<L, Replicated> ||
    std::same_as<L, Partial> || detail::SplitLayout<L>;

namespace detail {

/// A layout over several axes of a mesh of ranks, or over another one than `tensor`: see `Over`.
/// valid: `Over<On<MeshAxis::data, Sharded<Axis::batch>>>`
template <class L>
concept MeshLayout = detail::is_product<L>;

}  // namespace detail

/// A layout: a `PlainLayout`, or an `Over` of several.
template <class L>
concept Layout = PlainLayout<L> || detail::MeshLayout<L>;

/// The layout of the gradient of a tensor laid out as L. `dual_t<dual_t<L>>` is L.
template <Layout L>
using dual_t = typename detail::dual<L>::type;

/// "Sharded<feature>", "Haloed<height, kernel 3 stride 2 padding 1+1>",
/// "Over<On<data, Sharded<batch>>, On<tensor, Partial>>", for messages.
template <Layout L>
std::string layout_name() {
  return to_string(detail::layout_value<L>);
}

}  // namespace shardwise
