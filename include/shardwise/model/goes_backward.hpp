#pragma once
// Decides which parts of a model run backward, for the run, the plan and the description.

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/layers/layer.hpp"
#include "shardwise/model/context.hpp"
#include "shardwise/model/decide.hpp"
#include "shardwise/model/kinds.hpp"

namespace shardwise::detail {

/// Whether a layer or composition between the ends E owns parameters.
template <class L, class E>
struct OwnsParameters
    : std::bool_constant<(std::tuple_size_v<parameters_t<L, input_layout_at_t<L, E>>> > 0)> {};

/// For each part of the composition L, whether it owns parameters.
template <class L, class E>
inline constexpr std::array<bool, L::size> owners = [
]<std::size_t... Is>(std::index_sequence<Is...>) {
  return std::array<bool, L::size>{OwnsParameters<
      typename L::template layer_type<Is>,
      typename L::template ends_of<Is, typename E::offered, typename E::wanted>>::value...};
}
(std::make_index_sequence<L::size>{});

constexpr bool any_true(const auto& flags) {
  for (const bool flag : flags)
    if (flag) return true;
  return false;
}

/// Whether `has` is true for any of these slots.
constexpr bool any_of_slots(const auto& slots, const auto& has) {
  for (const std::size_t slot : slots)
    if (has[slot]) return true;
  return false;
}

/// For each slot of L, whether its value has a gradient, if the inputs in `Inputs` have one.
template <class L, class E, InputSet Inputs>
inline constexpr std::array<bool, L::slot_count> slot_gradients = [
]<std::size_t... Is>(std::index_sequence<Is...>) {
  std::array<bool, L::slot_count> has{};
  for (std::size_t input = 0; input < L::inputs; ++input) has[input] = Inputs.has(input);
  ((has[L::inputs + Is] = any_of_slots(L::template part_type<Is>::slots, has) || owners<L, E>[Is]),
   ...);
  return has;
}
(std::make_index_sequence<L::size>{});

/// Of the operands in these slots, those that have a gradient.
constexpr InputSet operands_of(const auto& slots, const auto& has) {
  InputSet set;
  for (std::size_t operand = slots.size(); operand-- > 0;)
    set.bits = set.bits << 1 | std::uint64_t{has[slots[operand]]};
  return set;
}

/// Part Index of a composition: its ends, and whether any value that it reads has a gradient.
template <class L, class S, class E, std::size_t Index>
struct SettingAt {
  using Layer = typename L::template layer_type<Index>;
  using Here = typename L::template ends_of<Index, typename E::offered, typename E::wanted>;
  static constexpr InputSet operands =
      operands_of(L::template part_type<Index>::slots, slot_gradients<L, E, S::input_gradients>);
  using Use = std::conditional_t<ReadsSeveral<Layer>, UseOfPart<S::trains, operands>,
                                 use_of<S::trains, operands.bits != 0>>;
};

template <class L, class E>
requires detail::ListsParts<L>
struct OwnsParameters<L, E> : std::bool_constant<detail::any_true(detail::owners<L, E>)> {
};

template <class L, class E>
requires detail::RepeatsBlock<L>
struct OwnsParameters<L, E>
    : OwnsParameters<typename L::repeated_block,
                     typename L::template block_ends<input_layout_at_t<L, E>>> {
};

/// Whether any part of L runs backward, in the setting S and between the ends E.
template <class L, class S, class E>
inline constexpr bool goes_backward = S::trains &&
                                      (S::input_gradient || OwnsParameters<L, E>::value);

/// The use of the parts after L: their input has a gradient if any part of L runs backward.
template <class L, class S, class E>
using use_behind = use_of<S::trains, goes_backward<L, S, E>>;

}  // namespace shardwise::detail
