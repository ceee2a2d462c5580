#pragma once
// Which parts of a model run backward. What runs, what is planned and what is described ask here.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/layers/layer.hpp"
#include "shardwise/model/context.hpp"
#include "shardwise/model/decide.hpp"

namespace shardwise {

/// Whether a layer or composition between the ends E owns parameters.
template <class L, class E>
struct OwnsParameters
    : std::bool_constant<(std::tuple_size_v<parameters_t<L, takes_t<L, E>>> > 0)> {};

namespace detail {

template <class L, class E, std::size_t... Is>
consteval std::size_t find_owner(std::index_sequence<Is...>) {
  constexpr bool owns[] = {OwnsParameters<
      typename L::template layer_type<Is>,
      typename L::template ends_of<Is, typename E::offered, typename E::wanted>>::value...};
  return static_cast<std::size_t>(std::find(std::begin(owns), std::end(owns), true) - owns);
}

/// The number of the first layer of the Sequential L that owns parameters; its size if none does.
template <class L, class E>
inline constexpr std::size_t first_owner = find_owner<L, E>(std::make_index_sequence<L::size>{});

}  // namespace detail

template <class L, class E>
requires requires { typename L::composition; }
struct OwnsParameters<L, E> : std::bool_constant<(detail::first_owner<L, E> < L::size)> {};

template <class L, class E>
requires requires { typename L::residual_block; }
struct OwnsParameters<L, E>
    : OwnsParameters<typename L::residual_block, Ends<takes_t<L, E>, takes_t<L, E>>> {};

template <class L, class E>
requires requires { typename L::repeated_block; }
struct OwnsParameters<L, E>
    : OwnsParameters<typename L::repeated_block, typename L::template block_ends<takes_t<L, E>>> {};

/// Whether anything of L runs backward, in the setting S and between the ends E.
template <class L, class S, class E>
inline constexpr bool goes_backward = S::trains &&
                                      (S::input_gradient || OwnsParameters<L, E>::value);

/// The use of what stands behind L: its input has a gradient if anything of L runs backward.
template <class L, class S, class E>
using use_behind = use_of<S::trains, goes_backward<L, S, E>>;

}  // namespace shardwise
