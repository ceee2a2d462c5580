#pragma once
// The two passes that decide where the data is: what is wanted, from right to left; what is offered
// and taken, from left to right. Types only.

#include <concepts>
#include <cstddef>

#include "shardwise/layout/layout.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise {

/// The layouts at the two ends of a layer or model: what it is offered, and what the part behind
/// it would like to be given.
template <Layout Offered, Layout Wanted>
struct Ends {
  using offered = Offered;  ///< what the part is given
  using wanted = Wanted;    ///< what would be welcome of it
};

/// What L would like to be offered when `Wanted` is wanted of it.
template <class L, Layout Wanted>
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
template <class L, Layout Offered = Invariant, Layout Wanted = Invariant>
using output_layout_t = gives_t<L, Ends<Offered, Wanted>>;

namespace detail {

/// What a stream is wanted as in front of the layers Ls.
template <Layout Wanted, class... Ls>
struct wanted_before {
  using type = Wanted;
};
template <Layout Wanted, class L, class... Ls>
struct wanted_before<Wanted, L, Ls...> {
  using type = wants_t<L, typename wanted_before<Wanted, Ls...>::type>;
};

/// A missing redistribution, said where a model is put together.
template <std::size_t ConsumerNumber, class Consumer, Layout Offered, Layout Taken>
consteval bool edge_must_exist() {
  static_assert(redistributable<Offered, Taken>,
                "Consumer takes a layout (Taken) to which there is no redistribution from what it "
                "is offered (Offered). Put To<Invariant> in front of it, which says what a value "
                "that all ranks hold is to count as. (Consumer is layer ConsumerNumber of the "
                "Sequential, counted from 0.)");
  return true;
}

/// Layer L of a chain, which has this number, between its ends.
template <std::size_t Number, class L, class E>
struct Link {
  static_assert(edge_must_exist<Number, L, typename E::offered, takes_t<L, E>>());
};

/// The ends of every layer of a chain whose first one has this number, and what the chain gives.
/// Each is a base, so that it is found by its number at once.
template <std::size_t Number, Layout Offered, Layout Wanted, class... Ls>
struct chain {
  using gives = Offered;
};
template <std::size_t Number, Layout Offered, Layout Wanted, class L, class... Ls>
struct chain<Number, Offered, Wanted, L, Ls...>
    : Link<Number, L, Ends<Offered, typename wanted_before<Wanted, Ls...>::type>>,
      chain<Number + 1, gives_t<L, Ends<Offered, typename wanted_before<Wanted, Ls...>::type>>,
            Wanted, Ls...> {};

template <std::size_t Number, class L, class E>
E numbered_ends(const Link<Number, L, E>&);

}  // namespace detail

}  // namespace shardwise
