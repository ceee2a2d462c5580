#pragma once
// The cut of a Sequential whose most expensive stage costs least.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/pipeline/cut.hpp"
#include "shardwise/pipeline/part_counts.hpp"

namespace shardwise {

namespace detail {

/// Layers between which there is no place for a cut.
struct Uncut {
  CutPlace begin{};
  std::uint64_t cost = 0;
};
using UncutList = GrowingList<Uncut>;

template <std::size_t Index, class E, class L>
constexpr void add_uncut(UncutList& list, const L& whole, std::uint64_t cost) {
  using Part = typename L::template layer_type<Index>;
  constexpr bool is_cut_inside = static_times_of < Part >> 1;
  if constexpr (Index > 0 &&
                (is_applied_before<L, E, Index>() || !is_crossed_once<L, CutPlace{Index}>())) {
    list[list.size() - 1].cost += cost;
  } else if constexpr (!is_cut_inside || !is_crossed_once<L, CutPlace{Index, 1}>()) {
    list.add({{Index, 0}, cost});
  } else {
    const std::size_t times = whole.template layer<Index>().times();
    for (std::size_t block = 0; block < times; ++block) list.add({{Index, block}, cost / times});
  }
}

/// The places of a cut none of whose stages costs more than `most`, each stage as long as it can
/// be; more than `stages` - 1 places if `most` is too small. Leaves a layer for each stage.
constexpr GrowingList<CutPlace> cut_within(const UncutList& list, std::uint64_t most,
                                           std::size_t stages) {
  GrowingList<CutPlace> places;
  std::uint64_t cost = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool is_needed = places.size() + 1 + (list.size() - i) == stages;
    if (i > 0 && (is_needed || cost + list[i].cost > most)) {
      places.add(list[i].begin);
      cost = 0;
    }
    cost += list[i].cost;
  }
  return places;
}

/// The places of the cut into so many stages whose most expensive one costs least. The list is not
/// shorter than the number of stages.
constexpr GrowingList<CutPlace> balanced(const UncutList& list, std::size_t stages) {
  std::uint64_t low = 0, high = 0;  // bounds of the cost of the most expensive stage
  for (const Uncut& one : list) {
    low = std::max(low, one.cost);
    high += one.cost;
  }
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (cut_within(list, middle, stages).size() < stages) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return cut_within(list, high, stages);
}

}  // namespace detail

/// The cut into so many stages whose most expensive one costs least, in constant expressions too:
///
///     constexpr std::array cut = cut_by_cost<4, Gpt>({{Axis::batch, 1}, {Axis::sequence, 1024}});
///
/// The cost of a layer is estimated from shapes: the elements of its parameters for each position
/// of its output, and the elements of the output; a table such as that of an Embedding counts its
/// output only. What attention multiplies besides its linear layers does not count: for sequences
/// that are long against the features, cut by hand.
/// throws   argument_error if there are fewer places than the cut needs; errors of layers that do
///          not take an input of shape `in`
template <std::size_t Stages, class L, class E = Ends<Invariant, Invariant>>
constexpr std::array<CutPlace, Stages - 1> cut_by_cost(const shapes_t<typename E::offered>& in,
                                                       const L& whole = L()) {
  detail::UncutList list;
  const auto counts = detail::part_counts<E>(whole, in);
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (detail::add_uncut<Is, E>(list, whole, counts.cost[Is]), ...);
  }
  (std::make_index_sequence<L::size>{});
  if (list.size() < Stages)
    throw argument_error({"cut_by_cost: the model has ", list.size(),
                          " layers and blocks between which it can be cut; that is not enough for ",
                          Stages, " stages"});
  const auto places = detail::balanced(list, Stages);
  std::array<CutPlace, Stages - 1> cut;
  for (std::size_t i = 0; i < cut.size(); ++i) cut[i] = places[i];
  return cut;
}

}  // namespace shardwise
