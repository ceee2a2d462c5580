#pragma once
// The layouts of several tensors at once: those at an end of a model with several inputs or
// outputs.

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// One layout for each of several tensors, in their order: `Layouts<Invariant, Partial>`.
template <Layout... Ls>
struct Layouts {
  static_assert(
      sizeof...(Ls) > 1,
      "Layouts names the layouts of two tensors or more. That of one tensor stands alone.");
};

namespace detail {

/// The shapes of N tensors: a Shape for one, a std::array of them for several.
template <std::size_t N>
using shapes_of = std::conditional_t<N == 1, Shape, std::array<Shape, N>>;

template <class L>
struct layouts_of {
  static constexpr std::size_t count = 0;
};
template <Layout L>
struct layouts_of<L> {
  static constexpr std::size_t count = 1;
  template <std::size_t>
  using nth = L;
  using duals = dual_t<L>;
  template <template <class, class> class Of, class T>
  using each = Of<T, L>;
};
template <Layout... Ls>
struct layouts_of<Layouts<Ls...>> {
  static constexpr std::size_t count = sizeof...(Ls);
  template <std::size_t N>
  using nth = std::tuple_element_t<N, std::tuple<Ls...>>;
  using duals = Layouts<dual_t<Ls>...>;
  template <template <class, class> class Of, class T>
  using each = std::tuple<Of<T, Ls>...>;
};

template <class... Ls>
struct ends_layout {
  using type = Layouts<Ls...>;
};
template <class L>
struct ends_layout<L> {
  using type = L;
};
/// The layout of one tensor, or the Layouts of several.
template <class... Ls>
using ends_layout_t = typename ends_layout<Ls...>::type;

template <class T, class L>
using view_of = View<T, L>;

}  // namespace detail

/// A `Layout`, or `Layouts` of several tensors.
template <class L>
concept EndLayout = (detail::layouts_of<L>::count > 0);

namespace detail {

/// The number of tensors of L.
template <EndLayout L>
inline constexpr std::size_t tensors_of = detail::layouts_of<L>::count;

/// The layout of tensor N of them, counted from 0.
template <EndLayout L, std::size_t N>
using nth_layout_t = typename detail::layouts_of<L>::template nth<N>;

/// The layouts of their gradients.
template <EndLayout L>
using duals_t = typename detail::layouts_of<L>::duals;

/// Views of these tensors: a View for a Layout, a std::tuple of them for Layouts.
template <class T, EndLayout L>
using views_t = typename detail::layouts_of<L>::template each<detail::view_of, T>;

}  // namespace detail

/// The shapes of the tensors of L: a Shape for a Layout, a std::array of them for Layouts.
template <EndLayout L>
using shapes_t = detail::shapes_of<detail::tensors_of<L>>;

}  // namespace shardwise
