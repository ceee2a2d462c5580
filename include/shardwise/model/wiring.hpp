#pragma once
// The layouts of the values of a composition, decided from its list of parts in two passes: wanted
// layouts from the last part to the first, then offered and taken layouts from the first to the
// last. Types only. L is a Graph, Offered the layouts of its inputs, Wanted the preferred layouts
// of its outputs.

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "shardwise/layers/merge.hpp"
#include "shardwise/layers/stream.hpp"
#include "shardwise/model/decide.hpp"
#include "shardwise/model/kinds.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise::detail {

/// A missing redistribution, reported where a composition is made.
template <std::size_t ConsumerNumber, class Consumer, Layout Offered, Layout Taken>
consteval bool edge_must_exist() {
  constexpr bool is_split_otherwise = ShardedLayout<Offered> && HaloedLayout<Taken>;
  static_assert(
      redistributable<Offered, Taken> || !is_split_otherwise,
      "Consumer reads windows along the axis of its layout Taken, but its images are "
      "split along another one (Offered). Put To<Sharded<A>> in front of it, where A is "
      "that axis of Taken: To<Sharded<Axis::width>> in front of a split::width. (Consumer "
      "is part ConsumerNumber of its composition, counted from 0.)");
  static_assert(redistributable<Offered, Taken> || is_split_otherwise,
                "Consumer takes a layout (Taken) to which there is no redistribution from what it "
                "is offered (Offered). Put To<Invariant> in front of it, which says what a value "
                "that all ranks hold is to count as. (Consumer is part ConsumerNumber of its "
                "composition, counted from 0.)");
  return true;
}

/// The first slot that part Index reads.
template <class L, std::size_t Index>
inline constexpr std::size_t first_slot = L::template part_type<Index>::slots[0];

/// Whether part Index reads this slot.
template <class L, std::size_t Index, std::size_t Slot>
consteval bool reads() {
  for (const std::size_t slot : L::template part_type<Index>::slots)
    if (slot == Slot) return true;
  return false;
}

/// The first operand as which a part with these slots reads this one; 0 if it does not.
constexpr std::size_t operand_in(const auto& slots, std::size_t slot) {
  for (std::size_t operand = 0; operand < slots.size(); ++operand)
    if (slots[operand] == slot) return operand;
  return 0;
}

// --- from the last part to the first -------------------------------------------------------------

template <class L, EndLayout Wanted, std::size_t Slot>
consteval auto slot_wanted();

/// The preferred layout of a slot.
template <class L, EndLayout Wanted, std::size_t Slot>
using slot_wanted_t = typename decltype(slot_wanted<L, Wanted, Slot>())::type;

/// The layout that a layer or merge prefers for its first operand; or, if `Several`, a Graph for
/// its input J. One class for all layers, to make compilers less work.
template <bool Several>
struct OperandWanted {
  template <class Layer, EndLayout Wanted, std::size_t J>
  using type = desired_input_layout_t<Layer, Wanted>;
};
template <>
struct OperandWanted<true> {
  template <class Layer, EndLayout Wanted, std::size_t J>
  using type = slot_wanted_t<Layer, Wanted, J>;
};

/// The layout that part Index prefers for its operand J.
template <class L, EndLayout Wanted, std::size_t Index, std::size_t J>
using wanted_by_t =
    typename OperandWanted<ReadsSeveral<typename L::template layer_type<Index>>>::template type<
        typename L::template layer_type<Index>, slot_wanted_t<L, Wanted, L::inputs + Index>, J>;

/// Whether all parts from number Index on that read a slot prefer the layout W.
template <class L, EndLayout Wanted, std::size_t Slot, Layout W,
          std::size_t Index = L::wires.first[Slot].part>
consteval bool all_want() {
  if constexpr (Index == L::size) {
    return true;
  } else if constexpr (reads<L, Index, Slot>() &&
                       !std::same_as<
                           wanted_by_t<L, Wanted, Index,
                                       operand_in(L::template part_type<Index>::slots, Slot)>,
                           W>) {
    return false;
  } else {
    return all_want<L, Wanted, Slot, W, Index + 1>();
  }
}

template <class L, EndLayout Wanted, std::size_t Slot>
consteval auto slot_wanted() {
  if constexpr (L::wires.count[Slot] == 0) {
    return std::type_identity<nth_layout_t<Wanted, L::wires.output_in(Slot)>>{};
  } else {
    using Last = wanted_by_t<L, Wanted, L::wires.last[Slot].part, L::wires.last[Slot].operand>;
    if constexpr (L::wires.count[Slot] == 1) {
      return std::type_identity<Last>{};
    } else if constexpr (!std::same_as<Last, Partial> && all_want<L, Wanted, Slot, Last>()) {
      return std::type_identity<Last>{};
    } else {
      return std::type_identity<stream_t<Last, Invariant>>{};
    }
  }
}

// --- from the first part to the last -------------------------------------------------------------

template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Slot>
consteval auto slot_layout();

/// The layout of the value in a slot when parts read it.
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Slot>
using slot_layout_t = typename decltype(slot_layout<L, Offered, Wanted, Slot>())::type;

template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index>
struct PartEnds;

/// The layouts at the two ends of part Index; the first is that of its first slot.
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index>
using part_ends_t = typename PartEnds<L, Offered, Wanted, Index>::type;

/// The layout in which part Index takes its first operand.
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index>
using part_input_layout_t = input_layout_at_t<typename L::template layer_type<Index>,
                                              part_ends_t<L, Offered, Wanted, Index>>;

template <class L, EndLayout Wanted, Layout C, std::size_t J>
consteval auto taken_of_graph();

/// The layouts of all slots that part Index reads.
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index,
          class Operands = std::make_index_sequence<L::template part_type<Index>::arity>>
struct LayoutsRead;
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index, std::size_t... Js>
struct LayoutsRead<L, Offered, Wanted, Index, std::index_sequence<Js...>> {
  using type =
      Layouts<slot_layout_t<L, Offered, Wanted, L::template part_type<Index>::slots[Js]>...>;
};

/// The layouts of the operands of part Index: a merge is offered the first one, and the others
/// follow from it. A Graph, if `Several`, takes its inputs as they lie, and converts them itself.
template <bool Several>
struct OperandLayouts {
  template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index>
  using offered = slot_layout_t<L, Offered, Wanted, first_slot<L, Index>>;
  template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index, std::size_t J>
  using taken = operand_t<typename L::template layer_type<Index>, J,
                          part_input_layout_t<L, Offered, Wanted, Index>>;
  template <class Layer, EndLayout Wanted, Layout C, std::size_t J>
  using beside_others = input_layout_at_t<Layer, Ends<C, Wanted>>;
};
template <>
struct OperandLayouts<true> {
  template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index>
  using offered = typename LayoutsRead<L, Offered, Wanted, Index>::type;
  template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index, std::size_t J>
  using taken = slot_layout_t<L, Offered, Wanted, L::template part_type<Index>::slots[J]>;
  template <class Layer, EndLayout Wanted, Layout C, std::size_t J>
  using beside_others = typename decltype(taken_of_graph<Layer, Wanted, C, J>())::type;
};
template <class L, std::size_t Index>
using layouts_of_operands = OperandLayouts<ReadsSeveral<typename L::template layer_type<Index>>>;

/// What is offered to part Index.
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index>
using offered_to_t =
    typename layouts_of_operands<L, Index>::template offered<L, Offered, Wanted, Index>;

/// The layout in which part Index takes its operand J.
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index, std::size_t J>
using taken_as_t =
    typename layouts_of_operands<L, Index>::template taken<L, Offered, Wanted, Index, J>;

/// The layout in which part Index takes a value of layout C, which other parts read too, as its
/// operand J.
template <class L, EndLayout Wanted, Layout C, std::size_t Index, std::size_t J>
using taken_beside_others_t = typename layouts_of_operands<L, Index>::template beside_others<
    typename L::template layer_type<Index>, slot_wanted_t<L, Wanted, L::inputs + Index>, C, J>;

/// Whether the only reader of part Index's value is a merge, as an operand other than its first.
template <class L, std::size_t Index>
inline constexpr bool gives_later_operand = false;
template <class L, std::size_t Index>
requires(L::wires.is_later_operand(L::inputs +
                                   Index)) inline constexpr bool gives_later_operand<L, Index> =
    !ReadsSeveral<typename L::template layer_type<L::wires.first[L::inputs + Index].part>>;

template <std::size_t Index, class Layer, class E>
struct CheckedEnds {
  static_assert(edge_must_exist<Index, Layer, typename E::offered, input_layout_at_t<Layer, E>>());
  using type = E;
};
template <std::size_t Index, ReadsSeveral Layer, class E>
struct CheckedEnds<Index, Layer, E> {
  using type = E;
};

template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index>
struct PartEnds : CheckedEnds<Index, typename L::template layer_type<Index>,
                              Ends<offered_to_t<L, Offered, Wanted, Index>,
                                   slot_wanted_t<L, Wanted, L::inputs + Index>>> {};

/// The other operands of a merge are converted to a layout that follows from that of its first
/// operand, which is known by then.
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index>
requires gives_later_operand<L, Index>
struct PartEnds<L, Offered, Wanted, Index>
    : CheckedEnds<Index, typename L::template layer_type<Index>,
                  Ends<offered_to_t<L, Offered, Wanted, Index>,
                       taken_as_t<L, Offered, Wanted, L::wires.first[L::inputs + Index].part,
                                  L::wires.first[L::inputs + Index].operand>>> {
};

/// Whether all parts from number Index on that read a slot take C as Taken.
template <class L, EndLayout Wanted, std::size_t Slot, Layout C, Layout Taken,
          std::size_t Index = L::wires.first[Slot].part>
consteval bool all_take() {
  if constexpr (Index == L::size) {
    return true;
  } else if constexpr (reads<L, Index, Slot>() &&
                       !std::same_as<taken_beside_others_t<
                                         L, Wanted, C, Index,
                                         operand_in(L::template part_type<Index>::slots, Slot)>,
                                     Taken>) {
    return false;
  } else {
    return all_take<L, Wanted, Slot, C, Taken, Index + 1>();
  }
}

/// The layout of a slot that several parts read, for a value that is given as Given.
template <class L, EndLayout Wanted, std::size_t Slot, Layout Given>
consteval auto fork_layout() {
  using Stream = stream_t<Given, slot_wanted_t<L, Wanted, Slot>>;
  using Taken = taken_beside_others_t<L, Wanted, Stream, L::wires.first[Slot].part,
                                      L::wires.first[Slot].operand>;
  if constexpr (!std::same_as<Taken, Partial> && redistributable<Given, Taken> &&
                all_take<L, Wanted, Slot, Stream, Taken>()) {
    return std::type_identity<Taken>{};
  } else {
    return std::type_identity<Stream>{};
  }
}

/// Input J of a Graph goes to the layout that its only reader takes, or all of its readers.
template <class L, EndLayout Wanted, Layout C, std::size_t J>
consteval auto taken_of_graph() {
  if constexpr (L::wires.count[J] > 1) {
    return fork_layout<L, Wanted, J, C>();
  } else {
    return std::type_identity<
        taken_beside_others_t<L, Wanted, C, L::wires.first[J].part, L::wires.first[J].operand>>{};
  }
}

/// The layout of part Index's output.
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Index>
using part_output_layout_t = output_layout_at_t<typename L::template layer_type<Index>,
                                                part_ends_t<L, Offered, Wanted, Index>>;

template <class L, EndLayout Offered, EndLayout Wanted, std::size_t Slot>
consteval auto slot_layout() {
  constexpr bool forks = L::wires.count[Slot] > 1;
  if constexpr (Slot < L::inputs && forks) {
    return fork_layout<L, Wanted, Slot, nth_layout_t<Offered, Slot>>();
  } else if constexpr (Slot < L::inputs) {
    return std::type_identity<nth_layout_t<Offered, Slot>>{};
  } else if constexpr (forks) {
    return fork_layout<L, Wanted, Slot,
                       part_output_layout_t<L, Offered, Wanted, Slot - L::inputs>>();
  } else {
    return std::type_identity<part_output_layout_t<L, Offered, Wanted, Slot - L::inputs>>{};
  }
}

/// The layout of a list's first input: that of its only reader, or the common layout of all its
/// readers.
template <class L, EndLayout Offered, EndLayout Wanted>
consteval auto list_input_layout() {
  if constexpr (L::wires.count[0] == 1) {
    return std::type_identity<
        taken_as_t<L, Offered, Wanted, L::wires.first[0].part, L::wires.first[0].operand>>{};
  } else {
    return std::type_identity<slot_layout_t<L, Offered, Wanted, 0>>{};
  }
}
template <class L, EndLayout Offered, EndLayout Wanted>
using list_input_layout_t = typename decltype(list_input_layout<L, Offered, Wanted>())::type;

/// The layouts of a list's outputs. The parts are checked from the first to the last, so the error
/// of any part is near the line that uses the list.
template <class L, EndLayout Offered, EndLayout Wanted, class Numbers, class Outputs>
struct ListOutputLayout;
template <class L, EndLayout Offered, EndLayout Wanted, std::size_t... Is, std::size_t... Os>
struct ListOutputLayout<L, Offered, Wanted, std::index_sequence<Is...>,
                        std::index_sequence<Os...>> {
  static_assert((std::is_class_v<typename PartEnds<L, Offered, Wanted, Is>::type> && ...));
  using type = ends_layout_t<slot_layout_t<L, Offered, Wanted, L::wires.output_slot(Os)>...>;
};
template <class L, EndLayout Offered, EndLayout Wanted>
using list_output_layout_t =
    typename ListOutputLayout<L, Offered, Wanted, std::make_index_sequence<L::size>,
                              std::make_index_sequence<L::outputs>>::type;

}  // namespace shardwise::detail
