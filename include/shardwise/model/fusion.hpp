#pragma once
// Which work of the activations beside a product is done by the product. They are fused:
//
//     forward     product --> activation     the product applies the activation, and gives z, its
//                                            input, if the slope is taken from that
//     backward    activation <-- product     the product multiplies its input's gradient by the
//                                            slope

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
#include "shardwise/redistribute/redistribute.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise::detail {

/// Part I of a composition, and what it does of the work of its neighbours.
template <class L, class S, class E, std::size_t I>
struct Fusion : SettingAt<L, S, E, I> {
  using typename SettingAt<L, S, E, I>::Layer;
  using typename SettingAt<L, S, E, I>::Here;
  using typename SettingAt<L, S, E, I>::Use;
  using Context = typename S::context;

  /// Whether layer I has the slope of `Other`, a layer beside it.
  template <class Other>
  static constexpr bool has_slope =
      has_slope_of<Layer, Other, typename Context::backend, typename Context::dtype>;

  /// The activation behind layer I, if layer I can apply it and nothing moves in between.
  static consteval Activation fused() {
    if constexpr (!L::wires.follows_alone(I + 1)) {
      return Activation::none;
    } else {
      using Next = typename L::template layer_type<I + 1>;
      using After = typename L::template ends_of<I + 1, typename E::offered, typename E::wanted>;
      constexpr bool stays =
          std::same_as<output_layout_at_t<Layer, Here>, input_layout_at_t<Next, After>>;
      if constexpr (activation_of<Next>() != Activation::none && stays) {
        constexpr bool is_enough = !S::trains || Next::saves == Saves::output || has_slope<Next>;
        return is_enough && fuses_activation<Layer, input_layout_at_t<Layer, Here>>
                   ? Next::activation
                   : Activation::none;
      } else {
        return Activation::none;
      }
    }
  }

  using Behind = typename L::template layer_type<I + 1 == L::size ? I : I + 1>;
  using Before = typename L::template layer_type<I == 0 ? 0 : I - 1>;
  using Back = adjoint_t<Redistribute<typename Here::offered, input_layout_at_t<Layer, Here>>>;
  static constexpr bool dx_stays = moves_nothing<Back, typename Context::communicator>;

  /// Whether layer I, where it applies an activation, gives z too, which that one saves.
  static constexpr bool gives_z = S::trains && SavesActivationInput<Behind>;

  /// Whether layer I multiplies by the slope of the activation in front of it, if nothing moves in
  /// between.
  static constexpr bool takes_slope =
      L::wires.follows_alone(I) && has_slope<Before> && dx_stays && Use::input_gradient;

  /// Whether the product in front of part I has applied it.
  static constexpr bool is_applied =
      I > 0 && Fusion<L, S, E, I == 0 ? 0 : I - 1>::fused() != Activation::none;

  /// Whether the product behind part I has multiplied by its slope.
  static constexpr bool has_its_slope = L::wires.follows_alone(I + 1) && Fusion < L, S, E,
                        I + 1 == L::size ? I : I + 1 > ::takes_slope;
};

template <class L, class S, class E, std::size_t I, class Operands>
struct BoundPart;
template <class L, class S, class E, std::size_t I, std::size_t... Js>
struct BoundPart<L, S, E, I, std::index_sequence<Js...>> {
  using At = SettingAt<L, S, E, I>;
  using Op = typename At::Layer;
  using Here = typename At::Here;
  template <std::size_t J, std::size_t Slot = L::template part_type<I>::slots[J]>
  using Read =
      Operand<typename L::template slot_layout<Slot, typename E::offered, typename E::wanted>,
              operand_t<Op, J, input_layout_at_t<Op, Here>>,
              slot_gradients<L, E, S::input_gradients>[Slot]>;
  using type = BoundMerge<Op, Setting<typename S::context, typename At::Use>, Here, Read<Js>...>;
};
template <class L, class S, class E, std::size_t I>
struct BoundPart<L, S, E, I, std::index_sequence<0>> {
  using At = Fusion<L, S, E, I>;
  using type =
      Bound<as_dynamic_t<typename At::Layer>,
            Setting<typename S::context, typename At::Use, At::fused()>, typename At::Here>;
};

/// What runs part I.
template <class L, class S, class E, std::size_t I>
using bound_part_t =
    typename BoundPart<L, S, E, I, std::make_index_sequence<L::template part_type<I>::arity>>::type;

}  // namespace shardwise::detail
