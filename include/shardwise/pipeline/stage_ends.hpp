#pragma once
// Where the stages of a pipeline begin and end, what they are given there, and whether ranks that
// have different tokens can have those of all of it.

#include <cstddef>
#include <type_traits>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/model/context.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/pipeline/cut.hpp"
#include "shardwise/pipeline/stage_layers.hpp"

namespace shardwise::detail {

/// The places where a stage begins and ends.
template <class L, auto Cut, std::size_t Stage>
inline constexpr StageRange stage_range{
    Stage == 0 ? CutPlace{} : Cut[Stage == 0 ? 0 : Stage - 1],
    Stage == Cut.size() ? CutPlace{L::size} : Cut[Stage == Cut.size() ? 0 : Stage]};

template <class L, class E, auto Cut, std::size_t Stage>
struct stage_ends {
  using Inputs = StageInputs<L, stage_range<L, Cut, Stage>>;

  template <std::size_t... Ks>
  static consteval auto offered(std::index_sequence<Ks...>) {
    using In = typename E::offered;
    if constexpr (Stage == 0) {
      return std::type_identity<ends_layout_t<nth_layout_t<In, Inputs::numbers[Ks]>...>>{};
    } else {
      return std::type_identity<ends_layout_t<typename layout_at_cut<L, E, Cut[Stage - 1]>::type,
                                              nth_layout_t<In, Inputs::numbers[Ks]>...>>{};
    }
  }
  static consteval auto wanted() {
    if constexpr (Stage == Cut.size()) {
      return std::type_identity<typename E::wanted>{};
    } else {
      return layout_at_cut<L, E, Cut[Stage]>{};
    }
  }
  using type = Ends<typename decltype(offered(typename Inputs::Numbers{}))::type,
                    typename decltype(wanted())::type>;
};

/// What the model of a stage is used for: of its inputs only the value from the stage before has a
/// gradient.
template <class Inputs>
using stage_use = std::conditional_t<
    Inputs::is_first, Train,
    std::conditional_t<Inputs::count == 1, TrainWithInputGradient, TrainWithGradientOf<0>>>;

/// Throws shape_error if ranks along `context` cannot have the same tokens of `first` and of
/// `other`, inputs of this stage. Sizes that are not known yet may fit.
inline void require_same_tokens(std::size_t stage, const Shape& first, const Shape& other) {
  const Axis cut = axis_over_context(first);
  if (axis_over_context(other) == cut) {
    const Dim& here = first[first.find(cut)];
    const Dim& there = other[other.find(cut)];
    if (cut == Axis::batch || !here.known() || !there.known() || here.units == there.units) return;
  }
  throw shape_error(
      {"pipeline: stage ", stage, " reads an input ", other, ", but ",
       stage == 0 ? "its first one" : "the value from the stage before", " is ", first,
       ": where ranks along context have different tokens, all that a stage is given must have as "
       "many. Cut the model where that value has the tokens of the input, or give the ranks along "
       "context to another axis"});
}

/// Does that for all inputs of a stage of `whole`, for inputs of the whole of these shapes.
template <class E, auto Cut, std::size_t Stage, class L>
void require_cut_alike_in(const L& whole, const shapes_t<typename E::offered>& in) {
  using Inputs = StageInputs<L, stage_range<L, Cut, Stage>>;
  if constexpr (Inputs::count > 1) {
    const auto all = slots_from<L::inputs>(in);
    const Shape first = [&] {
      if constexpr (Inputs::is_first) {
        return all[Inputs::numbers[0]];
      } else {
        return shape_at<stage_range<L, Cut, Stage>.begin>(whole, in);
      }
    }();
    for (const std::size_t input : Inputs::numbers) require_same_tokens(Stage, first, all[input]);
  }
}

/// And for all stages.
template <class E, auto Cut, class L>
void require_cut_alike(const L& whole, const shapes_t<typename E::offered>& in) {
  [&]<std::size_t... Stages>(std::index_sequence<Stages...>) {
    (require_cut_alike_in<E, Cut, Stages>(whole, in), ...);
  }
  (std::make_index_sequence<Cut.size() + 1>{});
}

}  // namespace shardwise::detail
