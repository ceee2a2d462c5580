#pragma once
// Checks of layers with tied parameters: each must find an owner that uses them in the same
// layouts.

#include <concepts>
#include <cstddef>
#include <utility>

#include "shardwise/model/decide.hpp"
#include "shardwise/model/model_checks.hpp"
#include "shardwise/model/tied.hpp"

namespace shardwise::detail {

/// Whether any layer of L has tied parameters.
template <class L>
inline constexpr bool has_tied = is_tied<L>;
template <class L, class Numbers>
inline constexpr bool any_has_tied = false;
template <class L, std::size_t... Is>
inline constexpr bool any_has_tied<L, std::index_sequence<Is...>> =
    (has_tied<typename L::template layer_type<Is>> || ...);
template <ListsParts L>
inline constexpr bool has_tied<L> = any_has_tied<L, std::make_index_sequence<L::size>>;
template <RepeatsBlock L>
inline constexpr bool has_tied<L> = has_tied<typename L::repeated_block>;

/// Layers with tied parameters, in model order, each with the Parameters that it uses.
template <class L, class Parameters>
struct TiedLayer {};
template <class... Layers>
struct TiedLayers {};
template <class... As, class... Bs>
TiedLayers<As..., Bs...> operator+(TiedLayers<As...>, TiedLayers<Bs...>);

template <class L, class E>
consteval auto tied_layers() {
  if constexpr (!has_tied<L>) {
    return TiedLayers<>{};
  } else if constexpr (ListsParts<L>) {
    return []<std::size_t... Is>(std::index_sequence<Is...>) {
      return decltype((
          TiedLayers<>{} + ... +
          tied_layers<
              typename L::template layer_type<Is>,
              typename L::template ends_of<Is, typename E::offered, typename E::wanted>>())){};
    }
    (std::make_index_sequence<L::size>{});
  } else if constexpr (RepeatsBlock<L>) {
    return tied_layers<typename L::repeated_block,
                       typename L::template block_ends<input_layout_at_t<L, E>>>();
  } else {
    return TiedLayers<TiedLayer<L, parameters_t<L, input_layout_at_t<L, E>>>>{};
  }
}

/// The error for a layer whose parameters have no owner, several owners, or an owner that uses them
/// in other layouts.
template <class L, class Parameters, std::size_t Owners, class OwnersParameters>
consteval bool tied_must_match() {
  static_assert(
      Owners > 0,
      "L borrows parameters, but no layer in front of it in the model owns them: name one "
      "Owns<Tag, ...> with the same Tag.");
  static_assert(
      Owners < 2,
      "Several layers in front of L own parameters under its Tag: give each of them a Tag "
      "of its own.");
  static_assert(
      Owners != 1 || std::same_as<Parameters, OwnersParameters>,
      "L borrows parameters and uses them in other layouts (Parameters) than their owner "
      "(OwnersParameters), so their gradients have no sum: one may be whole where the "
      "other is a summand. Split both layers alike, and give both the same input layout.");
  return true;
}

/// The owner under this tag among those layers: the number of owners, and the Parameters of the
/// last.
template <class Tag, class Layers>
struct OwnerOf {
  using parameters = void;
  static constexpr std::size_t count = 0;
};
template <class Tag, class L, class Parameters, class... Rest>
struct OwnerOf<Tag, TiedLayers<TiedLayer<L, Parameters>, Rest...>>
    : OwnerOf<Tag, TiedLayers<Rest...>> {};
template <class Tag, class L, class Parameters, class... Rest>
requires(!borrows_parameters<L> &&
         std::same_as<typename L::tied_tag,
                      Tag>) struct OwnerOf<Tag, TiedLayers<TiedLayer<L, Parameters>, Rest...>> {
  using parameters = Parameters;
  static constexpr std::size_t count = 1 + OwnerOf<Tag, TiedLayers<Rest...>>::count;
};

template <class... Before>
consteval bool all_tied_match(TiedLayers<Before...>, TiedLayers<>) {
  return true;
}
/// Checks each layer against the layers before it.
template <class... Before, class L, class Parameters, class... Rest>
consteval bool all_tied_match(TiedLayers<Before...>,
                              TiedLayers<TiedLayer<L, Parameters>, Rest...>) {
  if constexpr (borrows_parameters<L>) {
    using Owner = OwnerOf<typename L::tied_tag, TiedLayers<Before...>>;
    tied_must_match<L, Parameters, Owner::count, typename Owner::parameters>();
  }
  return all_tied_match(TiedLayers<Before..., TiedLayer<L, Parameters>>{}, TiedLayers<Rest...>{});
}

/// The errors for layers of a model with tied parameters. For a stage of a pipeline those of the
/// whole model are looked at.
template <class L, class E>
consteval bool tied_must_match_in() {
  if constexpr (LayersOfStage<L>) {
    return true;
  } else {
    return all_tied_match(TiedLayers<>{}, tied_layers<L, E>());
  }
}

}  // namespace shardwise::detail
