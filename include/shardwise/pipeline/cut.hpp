#pragma once
// The places where a pipeline cuts a Sequential or a Graph into stages.

#include <cstddef>
#include <utility>

#include "shardwise/backend/activation.hpp"
#include "shardwise/model/fusion.hpp"
#include "shardwise/model/kinds.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/tied_checks.hpp"

namespace shardwise {

/// A place where a pipeline cuts a Sequential or a Graph: before this part, or before this block of
/// this part, which is a Repeat.
struct CutPlace {
  std::size_t part = 0;   ///< counted from 0
  std::size_t block = 0;  ///< of the Repeat, counted from 0

  friend constexpr bool operator==(const CutPlace&, const CutPlace&) = default;
  /// Whether a comes before b.
  friend constexpr bool operator<(const CutPlace& a, const CutPlace& b) {
    return a.part != b.part ? a.part < b.part : a.block < b.block;
  }
};

namespace detail {

/// The number of blocks if L is a Repeat with the number in its type, else 0.
template <std::size_t N, class Block>
constexpr std::size_t static_times(const Repeat<N, Block>*) {
  return N == dynamic ? 0 : N;
}
constexpr std::size_t static_times(const void*) { return 0; }
template <class L>
inline constexpr std::size_t static_times_of = static_times(static_cast<const L*>(nullptr));

/// Whether the layer before part Index applies it, an activation.
template <class L, class E, std::size_t Index>
consteval bool is_applied_before() {
  if constexpr (Index == 0) {
    return false;
  } else {
    return applied_by<L, true, E, Index - 1>() != Activation::none;
  }
}

/// Whether is_good(number of a place) for all places of a cut.
template <auto Cut, class F>
consteval bool all_places(F is_good) {
  for (std::size_t i = 0; i < Cut.size(); ++i)
    if (!is_good(i)) return false;
  return true;
}

/// Whether only one value goes from the parts of L before a place to those behind it, besides the
/// inputs of L.
template <class L, CutPlace Place>
consteval bool is_crossed_once() {
  const bool is_inside = Place.block > 0;  // of a part whose value is made behind the place
  const std::size_t behind = Place.part + (is_inside ? 1 : 0);
  const std::size_t others = is_inside || Place.part == 0 ? Place.part : Place.part - 1;
  for (std::size_t part = 0; part < others; ++part) {
    const std::size_t slot = L::inputs + part;
    if (L::wires.count[slot] > 0 && L::wires.last[slot].part >= behind) return false;
  }
  return true;
}

/// The error for a cut that L does not have.
template <class L, class E, auto Cut>
consteval bool must_be_cut() {
  static_assert(ListsParts<L>, "A pipeline cuts a Sequential or a Graph. Put the layers into one.");
  static_assert(L::outputs == 1,
                "A pipeline cuts a model of one output. Concatenate the outputs, or train without "
                "a pipeline.");
  constexpr bool is_sorted = all_places<Cut>([](std::size_t i) {
    return (i == 0 ? CutPlace{} : Cut[i == 0 ? 0 : i - 1]) < Cut[i] && Cut[i].part < L::size;
  });
  static_assert(is_sorted,
                "The places of a cut are in the order of the layers, each after the one before, "
                "behind the first layer and before the end of the last part.");
  constexpr bool is_crossed_by_one = []<std::size_t... Is>(std::index_sequence<Is...>) {
    return (... && is_crossed_once<L, Cut[Is]>());
  }
  (std::make_index_sequence<Cut.size()>{});
  static_assert(is_crossed_by_one,
                "Only one value goes from the parts before a cut to those behind it, besides the "
                "model's inputs, which every stage may read. Cut where branches have met, or put "
                "them into one part.");
  constexpr bool has_blocks = []<std::size_t... Is>(std::index_sequence<Is...>) {
    return all_places<Cut>([](std::size_t i) {
      return Cut[i].block == 0 ||
             (... || (Is == Cut[i].part &&
                      Cut[i].block < static_times_of<typename L::template layer_type<Is>>));
    });
  }
  (std::make_index_sequence<L::size>{});
  static_assert(has_blocks,
                "A cut inside a part needs a Repeat with more blocks than the number in CutPlace, "
                "and that number in its type: Repeat<24, Block>.");
  constexpr bool is_between = []<std::size_t... Is>(std::index_sequence<Is...>) {
    return all_places<Cut>([](std::size_t i) {
      return Cut[i].block > 0 || !(... || (Is == Cut[i].part && is_applied_before<L, E, Is>()));
    });
  }
  (std::make_index_sequence<L::size>{});
  static_assert(is_between,
                "A cut lies between a layer and the activation that this layer applies. Cut behind "
                "the activation.");
  return tied_must_match_in<L, E>();
}

}  // namespace detail

}  // namespace shardwise
