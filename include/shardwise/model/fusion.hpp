#pragma once
// A composition's list of parts as it runs. If a layer can apply the activation after it, both are
// rewritten before they are bound:
//
//     Linear, Relu   ->   Linear that applies ReLU, AlreadyApplied<Relu>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "shardwise/backend/activation.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/bound.hpp"
#include "shardwise/model/bound_merge.hpp"
#include "shardwise/model/decide.hpp"
#include "shardwise/model/goes_backward.hpp"

namespace shardwise::detail {

/// The activation A after a layer that has already applied it: only its backward computes.
template <class A>
struct AlreadyApplied : A {
  constexpr explicit AlreadyApplied(const A& applied) : A(applied) {}
};
template <class A>
inline constexpr bool passes_forward<AlreadyApplied<A>> = true;

/// The activation that part Index applies for part Index + 1, or Activation::none. In training this
/// needs an activation that saves only its output, since its input is never stored.
template <class L, bool Trains, class E, std::size_t Index>
consteval Activation applied_by() {
  if constexpr (!L::wires.follows_alone(Index + 1)) {
    return Activation::none;
  } else {
    using Layer = as_dynamic_t<typename L::template layer_type<Index>>;
    using Here = typename L::template ends_of<Index, typename E::offered, typename E::wanted>;
    using Next = typename L::template layer_type<Index + 1>;
    using Behind = typename L::template ends_of<Index + 1, typename E::offered, typename E::wanted>;
    if constexpr (activation_of<Next>() != Activation::none && !std::is_final_v<Next>) {
      constexpr bool is_enough = !Trains || Next::saves == Saves::output;
      constexpr bool stays =
          std::same_as<output_layout_at_t<Layer, Here>, input_layout_at_t<Next, Behind>>;
      return is_enough && stays && AppliesActivation<Layer, input_layout_at_t<Layer, Here>>
                 ? Next::activation
                 : Activation::none;
    } else {
      return Activation::none;
    }
  }
}

/// The layer that runs as part Index of `list`.
template <bool Trains, class E, std::size_t Index, class L>
constexpr auto running(const L& list) {
  const auto& layer = layer_of<Index>(list);
  constexpr std::size_t before = Index == 0 ? 0 : Index - 1;
  constexpr Activation behind = applied_by<L, Trains, E, Index>();
  constexpr bool is_applied =
      Index != before && applied_by<L, Trains, E, before>() != Activation::none;
  if constexpr (behind != Activation::none) {
    using Layer = typename L::template layer_type<Index>;
    using Here = typename L::template ends_of<Index, typename E::offered, typename E::wanted>;
    return as_dynamic(layer).template with_activation<input_layout_at_t<Layer, Here>>(behind);
  } else if constexpr (is_applied) {
    return AlreadyApplied(layer);
  } else {
    return as_dynamic(layer);
  }
}

template <class L, class S, class E, std::size_t Index, class Operands>
struct BoundPart;
template <class L, class S, class E, std::size_t Index, std::size_t... Js>
struct BoundPart<L, S, E, Index, std::index_sequence<Js...>> {
  using At = SettingAt<L, S, E, Index>;
  using Op = typename At::Layer;
  using Here = typename At::Here;
  template <std::size_t J, std::size_t Slot = L::template part_type<Index>::slots[J]>
  using Read =
      Operand<typename L::template slot_layout<Slot, typename E::offered, typename E::wanted>,
              operand_t<Op, J, input_layout_at_t<Op, Here>>,
              slot_gradients<L, E, S::input_gradients>[Slot]>;
  using type = BoundMerge<Op, Setting<typename S::context, typename At::Use>, Here, Read<Js>...>;
};
template <class L, class S, class E, std::size_t Index, std::size_t... Js>
requires ReadsSeveral<typename L::template layer_type<Index>>
struct BoundPart<L, S, E, Index, std::index_sequence<Js...>> {
  using At = SettingAt<L, S, E, Index>;
  using type =
      Bound<typename At::Layer, Setting<typename S::context, typename At::Use>, typename At::Here>;
};
template <class L, class S, class E, std::size_t Index>
struct BoundPart<L, S, E, Index, std::index_sequence<0>> {
  using At = SettingAt<L, S, E, Index>;
  using Running = decltype(running<S::trains, E, Index>(std::declval<const L&>()));
  using type = Bound<Running, Setting<typename S::context, typename At::Use>, typename At::Here>;
};

/// The type of the layer that runs as part Index.
template <class L, class S, class E, std::size_t Index>
using bound_part_t =
    typename BoundPart<L, S, E, Index,
                       std::make_index_sequence<L::template part_type<Index>::arity>>::type;

}  // namespace shardwise::detail
