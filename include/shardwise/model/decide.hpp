#pragma once
// The layouts of a layer or composition between two given layouts. Types only.

#include "shardwise/layout/layouts.hpp"

namespace shardwise {

/// The layouts at the two ends of a layer or model: the layout in which its input is offered, and
/// the layout that the next part prefers. For a model with several inputs or outputs, each is a
/// `Layouts`.
template <EndLayout Offered, EndLayout Wanted>
struct Ends {
  using offered = Offered;  ///< of the input
  using wanted = Wanted;    ///< preferred by the next part
};

namespace detail {

/// The layout that L prefers for its input if `Wanted` is preferred for its output.
template <class L, EndLayout Wanted>
using desired_input_layout_t = typename L::template desired_input_layout<Wanted>;

/// The layout in which L takes its input between these ends.
template <class L, class E>
using input_layout_at_t =
    typename L::template input_layout<typename E::offered, typename E::wanted>;

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

/// The layout in which L gives its output between these ends.
template <class L, class E>
using output_layout_at_t = typename detail::output_layout_at<L, E>::type;

}  // namespace detail

/// The layout of a model's output without a conversion at its end: `output_layout_t<Mlp,
/// Invariant>` is Partial if its last layer is row-parallel.
template <class L, EndLayout Offered = Invariant, EndLayout Wanted = Invariant>
using output_layout_t = detail::output_layout_at_t<L, Ends<Offered, Wanted>>;

}  // namespace shardwise
