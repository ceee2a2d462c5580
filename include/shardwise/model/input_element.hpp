#pragma once
// The dtype of each input of a model: the model's, or that of the layer that reads the input.

#include <cstddef>
#include <tuple>
#include <utility>

#include "shardwise/layout/layouts.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/kinds.hpp"
#include "shardwise/model/value.hpp"

namespace shardwise::detail {

/// Whether input K of a layer or composition has a dtype of its own, see `input_element` of Layer.
template <class L, std::size_t K = 0>
inline constexpr bool has_own_element = requires {
  typename L::input_element;
};
template <ListsParts L, std::size_t K>
inline constexpr bool has_own_element<L, K> =
    has_own_element<typename L::template layer_type<L::wires.first[K].part>,
                    L::wires.first[K].operand>;

template <class L, class T, std::size_t K>
struct input_element {
  using type = T;
};
template <class L, class T, std::size_t K>
requires(has_own_element<L, K> && !ListsParts<L>) struct input_element<L, T, K> {
  using type = typename L::input_element;
};
template <ListsParts L, class T, std::size_t K>
requires(has_own_element<L, K>) struct input_element<L, T, K>
    : input_element<typename L::template layer_type<L::wires.first[K].part>, T,
                    L::wires.first[K].operand> {
};

/// The dtype of input K of a layer or composition in a model that computes in T.
template <class L, class T, std::size_t K = 0>
using input_element_t = typename detail::input_element<L, T, K>::type;

template <class L, class T, class Offered,
          class Numbers = std::make_index_sequence<tensors_of<Offered>>>
struct inputs_of {
  using views = View<const input_element_t<L, T>, Offered>;
  using values = Value<input_element_t<L, T>, Offered>;
};
template <class L, class T, class... Ls, std::size_t... Ks>
struct inputs_of<L, T, Layouts<Ls...>, std::index_sequence<Ks...>> {
  using views = std::tuple<View<const input_element_t<L, T, Ks>, Ls>...>;
  using values = std::tuple<Value<input_element_t<L, T, Ks>, Ls>...>;
};

/// The error for a gradient of an input whose dtype has none.
template <class Architecture, class Use, std::size_t... Ks>
consteval bool inputs_must_have_gradients(std::index_sequence<Ks...>) {
  static_assert((!(has_own_element<Architecture, Ks> && Use::input_gradients.has(Ks)) && ...),
                "the Model is asked for the gradient of an input with a dtype of its own, like "
                "token ids, and that has none. Make the Model with Train, or with "
                "TrainWithGradientOf<...> of the other inputs.");
  return true;
}

///@{
/// A model's or composition's input in the layout `Offered`, for a model that computes in T: a view
/// or value, or a std::tuple of several.
template <class L, class T, EndLayout Offered>
using input_views_t = typename detail::inputs_of<L, T, Offered>::views;
template <class L, class T, EndLayout Offered>
using input_values_t = typename detail::inputs_of<L, T, Offered>::values;
///@}

}  // namespace shardwise::detail
