#pragma once
// The place of a layer in a model as the compiler knows it, and which gradients go back from it.

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/model/context.hpp"
#include "shardwise/model/decide.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise::detail {

/// What the compiler knows about a layer's place in a model.
template <class Context, class Use>
struct Setting {
  using context = Context;                                     ///< of the model
  static constexpr bool trains = Use::trains;                  ///< whether there are gradients
  static constexpr bool input_gradient = Use::input_gradient;  ///< whether any input has one
  static constexpr detail::InputSet input_gradients = Use::input_gradients;  ///< which inputs do
};

/// The gradient that goes back from a part of a model; Nothing if it is not needed.
template <class T, class E, class S>
using input_gradient_t =
    std::conditional_t<S::input_gradient, Value<T, dual_t<typename E::offered>>, Nothing>;

template <class T, class E, class S, class Inputs>
struct input_gradients;
template <class T, class E, class S>
struct input_gradients<T, E, S, std::index_sequence<0>> {
  using type = input_gradient_t<T, E, S>;
};
template <class T, class E, class S, std::size_t... Ks>
struct input_gradients<T, E, S, std::index_sequence<Ks...>> {
  using type = std::tuple<
      std::conditional_t<S::input_gradients.has(Ks),
                         Value<T, dual_t<nth_layout_t<typename E::offered, Ks>>>, Nothing>...>;
};

/// Whether the ranks sum the gradient of the layer's input while it computes those of its
/// parameters.
template <class L, class S, class E>
consteval bool sums_meanwhile() {
  if constexpr (CollectivesGoOn<typename S::context::communicator> && S::input_gradient &&
                goes_backward_in_parts<L>) {
    using R = Redistribute<dual_t<input_layout_at_t<L, E>>, dual_t<typename E::offered>>;
    return R::movement == Movement::all_reduce;
  } else {
    return false;
  }
}

/// The gradients that go back from a model: one input_gradient_t for one input, a std::tuple of
/// them for several.
template <class T, class E, class S>
using input_gradients_t = typename detail::input_gradients<
    T, E, S, std::make_index_sequence<detail::tensors_of<typename E::offered>>>::type;

}  // namespace shardwise::detail
