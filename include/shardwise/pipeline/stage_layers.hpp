#pragma once
// The layers of one stage of a pipeline, as they are in the whole model.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/stream.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/model/composition.hpp"
#include "shardwise/model/extents.hpp"
#include "shardwise/model/kinds.hpp"
#include "shardwise/model/part.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/tied_parameters.hpp"
#include "shardwise/model/wiring.hpp"
#include "shardwise/pipeline/cut.hpp"
#include "shardwise/pipeline/part_counts.hpp"

namespace shardwise {

namespace detail {

/// Some of the blocks of a Repeat, with their numbers there.
template <std::size_t First, std::size_t Count, class Block>
class BlocksOfRepeat : public Repeat<Count, Block> {
 public:
  static constexpr std::size_t first_number = First;

  constexpr explicit BlocksOfRepeat(const Block& block) : Repeat<Count, Block>(block) {}
};

/// The parts of a Sequential or a Graph between two places.
struct StageRange {
  CutPlace begin{};
  CutPlace end{};

  /// At least one, also of a range that is refused because it ends before it begins.
  constexpr std::size_t parts() const {
    return end < begin ? 1 : end.part + (end.block > 0 ? 1 : 0) - begin.part;
  }
};

/// Part `Index` of a stage: what the range leaves of a part of L.
template <class L, StageRange Range, std::size_t Index>
struct PartOfStage {
  static constexpr std::size_t number = Range.begin.part + Index;
  using Whole = typename L::template layer_type<number>;
  static constexpr std::size_t first = Index == 0 ? Range.begin.block : 0;
  static constexpr bool is_cut = first > 0 || number == Range.end.part;

  static constexpr auto of(const L& whole) {
    const Whole& layer = whole.template layer<number>();
    if constexpr (is_cut) {
      constexpr std::size_t behind =
          number == Range.end.part ? Range.end.block : static_times_of<Whole>;
      return BlocksOfRepeat<first, behind - first, typename Whole::repeated_block>(layer.block());
    } else {
      return layer;
    }
  }
  using type = decltype(of(std::declval<const L&>()));
};

/// Whether a part of L reads a slot, of so many parts from `First` on.
template <class L, std::size_t First, std::size_t Slot, std::size_t... Is>
consteval bool is_read_from(std::index_sequence<Is...>) {
  return (... || reads<L, First + Is, Slot>());
}

/// The inputs of a stage of L: if it is not the first one, the value at the place where it begins,
/// and then those inputs of L that its parts read.
template <class L, StageRange Range>
struct StageInputs {
  static constexpr bool is_first = Range.begin == CutPlace{};
  static constexpr bool begins_inside = Range.begin.block > 0;  ///< of a Repeat

  template <std::size_t... Ks>
  static consteval std::array<bool, L::inputs> inputs_read(std::index_sequence<Ks...>) {
    constexpr std::size_t skipped = begins_inside ? 1 : 0;
    return {is_read_from<L, Range.begin.part + skipped, Ks>(
        std::make_index_sequence<Range.parts() - skipped>{})...};
  }
  /// Whether its parts read each input of L.
  static constexpr std::array<bool, L::inputs> read =
      inputs_read(std::make_index_sequence<L::inputs>{});

  /// Those that they read before this one.
  static constexpr std::size_t read_before(std::size_t input) {
    std::size_t number = 0;
    for (std::size_t k = 0; k < input; ++k)
      if (read[k]) ++number;
    return number;
  }
  static constexpr std::size_t given = read_before(L::inputs);  ///< inputs of L
  static constexpr std::size_t count = given + (is_first ? 0 : 1);

  /// Their numbers in L.
  static constexpr std::array<std::size_t, given> numbers = [] {
    std::array<std::size_t, given> list{};
    for (std::size_t k = 0; k < L::inputs; ++k)
      if (read[k]) list[read_before(k)] = k;
    return list;
  }();
  using Numbers = std::make_index_sequence<given>;  ///< of these

  /// The slot in the stage of what part `part` of L reads from this slot of L.
  static constexpr std::size_t slot(std::size_t part, std::size_t of_whole) {
    if (begins_inside && part == Range.begin.part) return 0;
    if (of_whole < L::inputs) return count - given + read_before(of_whole);
    const std::size_t writer = of_whole - L::inputs;
    return writer < Range.begin.part ? 0 : count + writer - Range.begin.part;
  }
};

/// Part Index of a stage with its slots there.
template <class L, StageRange Range, std::size_t Index, class Operands>
struct part_at;
template <class L, StageRange Range, std::size_t Index, std::size_t... Js>
struct part_at<L, Range, Index, std::index_sequence<Js...>> {
  using Part = PartOfStage<L, Range, Index>;
  using type =
      At<typename Part::type, StageInputs<L, Range>::slot(
                                  Part::number, L::template part_type<Part::number>::slots[Js])...>;
};

template <class L, StageRange Range, class Indices>
struct stage_parts;
template <class L, StageRange Range, std::size_t... Is>
struct stage_parts<L, Range, std::index_sequence<Is...>> {
  using type =
      Graph<StageInputs<L, Range>::count,
            typename part_at<L, Range, Is,
                             std::make_index_sequence<
                                 L::template part_type<Range.begin.part + Is>::arity>>::type...>;
};
template <class L, StageRange Range>
using stage_parts_t = typename stage_parts<L, Range, std::make_index_sequence<Range.parts()>>::type;

/// The layers of a stage of L, with the numbers and the random numbers that they have in L, and
/// with what they share with other stages.
template <class L, StageRange Range>
class StageLayers : public stage_parts_t<L, Range> {
  using Parts = stage_parts_t<L, Range>;

 public:
  static constexpr std::size_t first_number = Range.begin.part;

  StageLayers(const L& whole, std::uint64_t first_ordinal, std::vector<TiedOverStages> tied)
      : StageLayers(whole, first_ordinal, std::move(tied),
                    std::make_index_sequence<Range.parts()>{}) {}

  std::uint64_t first_ordinal() const { return first_ordinal_; }
  /// Their slots are filled when a model is bound to them.
  std::span<TiedOverStages> tied_over_stages() { return tied_; }
  std::span<const TiedOverStages> tied_over_stages() const { return tied_; }

 private:
  template <std::size_t... Is>
  StageLayers(const L& whole, std::uint64_t first_ordinal, std::vector<TiedOverStages>&& tied,
              std::index_sequence<Is...>)
      : Parts(PartOfStage<L, Range, Is>::of(whole)...),
        first_ordinal_(first_ordinal),
        tied_(std::move(tied)) {}

  std::uint64_t first_ordinal_;
  std::vector<TiedOverStages> tied_;
};

/// The number of layers with parameters or random numbers before a place of `whole`, for inputs of
/// these shapes.
template <CutPlace Place, class E, class L>
constexpr std::uint64_t ordinals_before(const L& whole, const shapes_t<typename E::offered>& in) {
  const PartCounts<L::size> counts = part_counts<E>(whole, in);
  std::uint64_t ordinals = 0;
  for (std::size_t part = 0; part < Place.part; ++part) ordinals += counts.ordinals[part];
  if constexpr (Place.block > 0)
    ordinals +=
        counts.ordinals[Place.part] / whole.template layer<Place.part>().times() * Place.block;
  return ordinals;
}

/// The shape of what part Number of `whole` gives, for the shapes in the slots before it.
/// throws   as the part, with its place
template <std::size_t Number, class L>
constexpr Shape shape_behind(const L& whole, const std::array<Shape, L::slot_count>& slots) {
  using Part = typename L::template layer_type<Number>;
  try {
    return part_shape<typename L::template part_type<Number>>(whole.template layer<Number>(),
                                                              slots);
  } catch (error& e) {
    e.add_place(sentence({Number, ": ", name_of<Part>()}), IsComposition<Part> ? " / " : ": ");
    throw;
  }
}

/// The shape of the value at a place of `whole` where it is cut, for inputs of these shapes. Blocks
/// keep the shape.
template <CutPlace Place, class L>
constexpr Shape shape_at(const L& whole, const shapes_of<L::inputs>& in) {
  auto slots = slots_from<L::slot_count>(in);
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    ((slots[L::inputs + Is] = shape_behind<Is>(whole, slots)), ...);
  }
  (std::make_index_sequence<Place.part>{});
  if constexpr (Place.block > 0) {
    return slots[first_slot<L, Place.part>];
  } else {
    return slots[L::inputs + Place.part - 1];
  }
}

/// The layout of the value at a place of L between the ends E: that in which the part in front of
/// it gives it, but never a summand, and the same for its gradient.
template <class L, class E, CutPlace Place>
consteval auto stream_at_cut() {
  using Offered = typename E::offered;
  using Wanted = typename E::wanted;
  if constexpr (Place.block > 0) {
    using Blocks = typename L::template layer_type<Place.part>;
    return std::type_identity<
        input_layout_at_t<Blocks, typename L::template ends_of<Place.part, Offered, Wanted>>>{};
  } else {
    constexpr std::size_t slot = L::inputs + Place.part - 1;
    using Given = typename L::template slot_layout<slot, Offered, Wanted>;
    return std::type_identity<stream_t<Given, slot_wanted_t<L, Wanted, slot>>>{};
  }
}
template <class L, class E, CutPlace Place>
struct layout_at_cut {
  using type = typename decltype(stream_at_cut<L, E, Place>())::type;
  static_assert(std::same_as<dual_t<type>, type>,
                "The layout of the value at a cut of a pipeline must be its own dual, and one with "
                "halos is not. Cut at another place.");
};

}  // namespace detail

/// "Gpt from part 1, block 6 on".
template <class L, detail::StageRange Range>
struct NameOf<detail::StageLayers<L, Range>> {
  /// As NameOf says.
  static std::string name() {
    std::string text = detail::sentence({detail::name_of<L>(), " from part ", Range.begin.part});
    if (Range.begin.block > 0) detail::append(text, {", block ", Range.begin.block, ","});
    return text + " on";
  }
};

}  // namespace shardwise
