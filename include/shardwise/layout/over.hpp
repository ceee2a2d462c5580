#pragma once
// Layouts over several axes of a mesh of ranks: a layout along each of them.

#include <concepts>
#include <type_traits>

#include "shardwise/core/mesh.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

/// The layout L along the mesh axis A, in `Over`.
template <MeshAxis A, PlainLayout L>
struct On {
  static constexpr MeshAxis axis = A;  ///< of the mesh
};

namespace detail {

/// Layouts along mesh axes in the order of `mesh_axes`, and Invariant along the others. Only `Over`
/// names it, so that each layout has one type.
template <class... Ons>
struct Product {};

template <class... Ons>
struct Components : Ons... {};
template <MeshAxis A, class L>
std::type_identity<L> component(const On<A, L>*);
template <MeshAxis>
std::type_identity<Invariant> component(...);

template <class L, MeshAxis A>
struct along {
  using type = std::conditional_t<A == MeshAxis::tensor, L, Invariant>;
};
template <class... Ons, MeshAxis A>
struct along<Product<Ons...>, A> {
  using type =
      typename decltype(component<A>(static_cast<const Components<Ons...>*>(nullptr)))::type;
};

/// `Done` followed by those of the others that are not Invariant.
template <class Done, class... Others>
struct normal_form {
  using type = Done;
};
template <class L>
struct normal_form<Product<On<MeshAxis::tensor, L>>> {
  using type = L;
};
template <>
struct normal_form<Product<>> {
  using type = Invariant;
};
template <class... Done, MeshAxis A, class L, class... Others>
struct normal_form<Product<Done...>, On<A, L>, Others...>
    : normal_form<std::conditional_t<std::same_as<L, Invariant>, Product<Done...>,
                                     Product<Done..., On<A, L>>>,
                  Others...> {};

/// Only the error: a mesh axis that is named twice stops the compiler here.
template <class... Ons>
consteval bool must_name_axes_once() {
  int times[mesh_axes.size()] = {};
  bool once = true;
  ((once = ++times[static_cast<std::size_t>(Ons::axis)] == 1 && once), ...);
  return once;
}

template <class... Ons>
struct over {
  static_assert(must_name_axes_once<Ons...>(),
                "Over names a mesh axis twice. Along each mesh axis a tensor has one layout.");
  template <MeshAxis A>
  using on = On<A, typename along<Product<Ons...>, A>::type>;
  using type =
      typename normal_form<Product<>, on<MeshAxis::pipeline>, on<MeshAxis::replica>,
                           on<MeshAxis::data>, on<MeshAxis::context>, on<MeshAxis::tensor>>::type;
};

template <MeshAxis... As, class... Ls>
struct dual<Product<On<As, Ls>...>> {
  using type = Product<On<As, dual_t<Ls>>...>;
};

template <MeshAxis... As, class... Ls>
inline constexpr MeshLayoutValue layout_value<Product<On<As, Ls>...>>{
    MeshLayoutValue::On{As, layout_value<Ls>}...};

}  // namespace detail

/// Layouts along axes of a mesh, in any order, and Invariant along those that are not named. If the
/// ranks that differ only in their place along one axis are taken alone, they hold the part of the
/// tensor that their other places leave, and it is laid out over them as that axis says. If several
/// mesh axes cut one axis of the tensor, the outer one of `MeshAxis` cuts first, and each inner one
/// cuts the blocks of the outer ones.
///
///     Over<On<MeshAxis::data, Sharded<Axis::batch>>, On<MeshAxis::tensor, Sharded<Axis::feature>>>
///
/// A layout along `tensor` alone is that layout: `Over<On<MeshAxis::tensor, Partial>>` is
/// `Partial`.
template <class... Ons>
using Over = typename detail::over<Ons...>::type;

/// The layout on a mesh of a model's input or output that is L along `tensor`: its samples are cut
/// over `replica` and, within those, over `data`. Ranks along `context` cut the axis Cut: the
/// tokens of each sample, the rows of images (height), or once more the samples (batch). The tensor
/// needs that axis only where `context` has several ranks. In the Ends of a Model a plain L stands
/// for SamplesOverMesh<L>:
///
///     // images -> logits
///     Ends<SamplesOverMesh<Invariant, Axis::height>, SamplesOverMesh<Invariant, Axis::batch>>
template <PlainLayout L, Axis Cut = Axis::sequence>
using SamplesOverMesh =
    Over<On<MeshAxis::replica, Sharded<Axis::batch>>, On<MeshAxis::data, Sharded<Axis::batch>>,
         On<MeshAxis::context, Sharded<Cut>>, On<MeshAxis::tensor, L>>;

namespace detail {

/// The layout of L along the mesh axis A. A plain layout is one along `tensor`.
template <Layout L, MeshAxis A>
using along_t = typename detail::along<L, A>::type;

/// The axis that L cuts along `context`: that of SamplesOverMesh if it cuts none.
template <class L>
inline constexpr Axis axis_cut_by = Axis::sequence;
template <Axis A>
inline constexpr Axis axis_cut_by<Sharded<A>> = A;

}  // namespace detail

/// The place of a rank, as L needs it: a MeshPlace for a layout over a mesh, else a Place.
template <class L>
using place_t = std::conditional_t<detail::MeshLayout<L>, MeshPlace, Place>;

/// The place of a rank of a mesh, as L needs it: for a plain layout the one along `tensor`.
template <Layout L>
constexpr place_t<L> place_for(const MeshPlace& place) {
  if constexpr (detail::MeshLayout<L>) {
    return place;
  } else {
    return place[MeshAxis::tensor];
  }
}

}  // namespace shardwise
