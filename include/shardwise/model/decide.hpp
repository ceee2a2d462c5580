#pragma once
// What a layer or composition wants, takes and gives between two layouts. Types only.

#include "shardwise/layout/layouts.hpp"

namespace shardwise {

/// The layouts at the two ends of a layer or model: what it is offered, and what the part behind
/// it would like to be given. `Layouts` of several tensors for a model with several inputs or
/// outputs.
template <EndLayout Offered, EndLayout Wanted>
struct Ends {
  using offered = Offered;  ///< what the part is given
  using wanted = Wanted;    ///< what would be welcome of it
};

/// What L would like to be offered when `Wanted` is wanted of it.
template <class L, EndLayout Wanted>
using wants_t = typename L::template wants<Wanted>;

/// What L takes between these ends.
template <class L, class E>
using takes_t = typename L::template takes<typename E::offered, typename E::wanted>;

namespace detail {

template <class L, class E>
struct gives {
  using type = typename L::template gives<takes_t<L, E>>;
};
template <class L, class E>
requires requires { typename L::template gives_between<typename E::offered, typename E::wanted>; }
struct gives<L, E> {
  using type = typename L::template gives_between<typename E::offered, typename E::wanted>;
};

}  // namespace detail

/// What L gives between these ends.
template <class L, class E>
using gives_t = typename detail::gives<L, E>::type;

/// The layout that a model gives by itself: `output_layout_t<Mlp, Invariant>` is Partial if its
/// last layer is row-parallel.
template <class L, EndLayout Offered = Invariant, EndLayout Wanted = Invariant>
using output_layout_t = gives_t<L, Ends<Offered, Wanted>>;

}  // namespace shardwise
