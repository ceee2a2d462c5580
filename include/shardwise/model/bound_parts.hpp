#pragma once
// The parts of a composition, each bound, and the location of the one that runs.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/location.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/type_set.hpp"
#include "shardwise/model/binder.hpp"
#include "shardwise/model/composition.hpp"
#include "shardwise/model/extents.hpp"
#include "shardwise/model/fusion.hpp"
#include "shardwise/model/kinds.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

/// How the parts of a composition stand in the locations of errors: a composition without numbers
/// adds nothing for parts that are compositions, which add their own.
enum class PartLocation : std::uint8_t { numbered, named, nothing };
template <class L, class Layer>
inline constexpr PartLocation part_location = L::numbers_parts       ? PartLocation::numbered
                                              : IsComposition<Layer> ? PartLocation::nothing
                                                                     : PartLocation::named;

/// While it lives, the thread is in a part of a composition, which runs or is bound.
template <class Context, PartLocation>
class InPart : InNumberedPart<Context> {
 public:
  using InNumberedPart<Context>::InNumberedPart;
};
template <class Context>
class InPart<Context, PartLocation::named> : Location {
 public:
  InPart(Run<Context>&, const NumberedPart& part) : Location(part.name, false) {}
};
template <class Context>
class [[maybe_unused]] InPart<Context, PartLocation::nothing> {
 public:
  InPart(Run<Context>&, const NumberedPart&) {}
};

/// Part Index of L.
template <class L, std::size_t Index>
inline constexpr NumberedPart numbered_part{L::first_number + Index,
                                            name_of<typename L::template layer_type<Index>>,
                                            IsComposition<typename L::template layer_type<Index>>};

/// While the result lives, the thread is in part Index of L.
template <class L, std::size_t Index, class Context>
auto in_part(Run<Context>& run) {
  return InPart<Context, part_location<L, typename L::template layer_type<Index>>>(
      run, numbered_part<L, Index>);
}

/// Binds part Index of L between the ends E of L. The part before it was bound last, and its shape
/// is put into its slot. (A member of BoundParts would have a symbol with all indices.)
template <std::size_t Index, class L, class S, class E, std::size_t Slots>
[[gnu::noinline]] bound_part_t<L, S, E, Index> bind_part(const L& list,
                                                         std::array<Shape, Slots>& shapes,
                                                         Binder<typename S::context>& binder) {
  using Part = typename L::template part_type<Index>;
  using Layer = typename Part::layer;
  using B = bound_part_t<L, S, E, Index>;
  [[maybe_unused]] const auto here = in_part<L, Index>(binder.run);
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
  BoundParts(const L& list, Shapes& shapes, Binder<typename S::context>& binder)
      : NumberedBound<Is, bound_part_t<L, S, E, Is>>{
            bind_part<Is, L, S, E>(list, shapes, binder)}... {}

  /// The types of their parameters.
  using parameter_types =
      decltype((TypeSet<>{} | ... | typename bound_part_t<L, S, E, Is>::parameter_types{}));
};

}  // namespace shardwise::detail
