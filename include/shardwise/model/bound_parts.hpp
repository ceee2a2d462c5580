#pragma once
// The parts of a composition, each bound, and the place in an error of the one that runs.

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/type_set.hpp"
#include "shardwise/model/binder.hpp"
#include "shardwise/model/composition.hpp"
#include "shardwise/model/extents.hpp"
#include "shardwise/model/fusion.hpp"
#include "shardwise/model/kinds.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

/// The names of a composition's parts, for the places of errors.
struct PartNames {
  std::string (*const* names)();  ///< of each part
  const bool* are_compositions;   ///< each part, which adds places of its own
  bool have_numbers;              ///< see `Composition::numbers_parts`
  std::size_t first_number;       ///< of the first part

  void add_to(error& e, std::size_t number) const;
};

template <class L, std::size_t... Is>
PartNames names_of_parts(std::index_sequence<Is...>) {
  static constexpr std::string (*names[])() = {name_of<typename L::template layer_type<Is>>...};
  static constexpr bool compositions[] = {IsComposition<typename L::template layer_type<Is>>...};
  return {names, compositions, L::numbers_parts, L::first_number};
}

/// The part of the composition L that runs now, for the place in an error.
template <class L>
struct Position {
  std::size_t number = 0;

  void add_to(error& e) const {
    names_of_parts<L>(std::make_index_sequence<L::size>{}).add_to(e, number);
  }
};

/// While it lives, the part `index` of the composition L runs, or is bound. If parts have numbers,
/// the rank is `In` the part: an InNumberedPart while it runs, an InBoundPart while it is bound.
template <class L, class In>
class AtPart {
 public:
  template <class Of>
  AtPart(Of& of, Position<L>& at, std::size_t index, std::string (*name)())
      : in_(of, L::first_number + index, name) {
    at.number = index;
  }

 private:
  In in_;
};
template <class L, class In>
requires(!L::numbers_parts) class AtPart<L, In> {
 public:
  template <class Of>
  AtPart(Of&, Position<L>& at, std::size_t index, std::string (*)()) {
    at.number = index;
  }
};

/// Binds part Index of L between the ends E of L. The part before it was bound last, and its shape
/// is put into its slot. (A member of BoundParts would have a symbol with all indices.)
template <std::size_t Index, class L, class S, class E, std::size_t Slots>
[[gnu::noinline]] bound_part_t<L, S, E, Index> bind_part(const L& list,
                                                         std::array<Shape, Slots>& shapes,
                                                         Binder<typename S::context>& binder,
                                                         Position<L>& at) {
  using Part = typename L::template part_type<Index>;
  using Layer = typename Part::layer;
  using B = bound_part_t<L, S, E, Index>;
  const AtPart<L, InBoundPart<typename S::context>> here(binder, at, Index, name_of<Layer>);
  if constexpr (Index > 0) binder.put_given(shapes[L::inputs + Index - 1]);
  const Layer& layer = layer_of<Index>(list);
  if constexpr (ReadsSeveral<Layer>) {
    return B(layer, operand_shapes<Part>(shapes), binder);
  } else if constexpr (IsComposition<Layer>) {
    return B(layer, shapes[Part::slots[0]], binder);
  } else if constexpr (Part::arity == 1) {
    return B(running<S::trains, E, Index>(list), shapes[Part::slots[0]], binder, name_of<Layer>);
  } else {
    return B(layer, operand_shapes<Part>(shapes), binder);
  }
}

template <std::size_t Index, class B>
struct NumberedBound {
  B bound;
};

template <class L, class S, class E, class Indices>
struct BoundParts;
template <class L, class S, class E, std::size_t... Is>
struct BoundParts<L, S, E, std::index_sequence<Is...>>
    : NumberedBound<Is, bound_part_t<L, S, E, Is>>... {
  using Shapes = std::array<Shape, L::slot_count>;

  /// `shapes` begins with the shapes of the inputs. Bases are constructed in order, so each finds
  /// the shapes of all slots before it.
  BoundParts(const L& list, Shapes& shapes, Binder<typename S::context>& binder, Position<L>& at)
      : NumberedBound<Is, bound_part_t<L, S, E, Is>>{
            bind_part<Is, L, S, E>(list, shapes, binder, at)}... {}

  /// The types of their parameters.
  using parameter_types =
      decltype((TypeSet<>{} | ... | typename bound_part_t<L, S, E, Is>::parameter_types{}));
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void PartNames::add_to(error& e, std::size_t number) const {
  const bool is_composition = are_compositions[number];
  if (have_numbers) {
    e.add_place(sentence({first_number + number, ": ", names[number]()}),
                is_composition ? " / " : ": ");
  } else if (!is_composition) {
    e.add_place(names[number]());
  }
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
