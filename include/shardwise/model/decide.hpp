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
using desired_input_layout_t = typename L::template desired_input_layout<Wanted>;

/// What L takes between these ends.
template <class L, class E>
using input_layout_at_t =
    typename L::template input_layout<typename E::offered, typename E::wanted>;

namespace detail {

template <class L, class E>
struct output_layout_at {
  using type = typename L::template output_layout<input_layout_at_t<L, E>>;
};
template <class L, class E>
requires requires {
  typename L::template output_layout_between<typename E::offered, typename E::wanted>;
}
struct output_layout_at<L, E> {
  using type = typename L::template output_layout_between<typename E::offered, typename E::wanted>;
};

}  // namespace detail

/// What L gives between these ends.
template <class L, class E>
using output_layout_at_t = typename detail::output_layout_at<L, E>::type;

/// The layout that a model gives by itself: `output_layout_t<Mlp, Invariant>` is Partial if its
/// last layer is row-parallel.
template <class L, EndLayout Offered = Invariant, EndLayout Wanted = Invariant>
using output_layout_t = output_layout_at_t<L, Ends<Offered, Wanted>>;

}  // namespace shardwise
