#pragma once
// The number of a model's parameters on each rank, known before it runs.

#include <cstddef>
#include <tuple>

#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/parameter_layout.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/tied.hpp"
#include "shardwise/model/tied_of_stages.hpp"
#include "shardwise/model/walk.hpp"

namespace shardwise {

namespace detail {

/// Counts the elements of parameters on the rank at `place`, and finds their order in memory: by
/// default without gaps. What a stage of a pipeline shares with others counts once in each.
struct ParameterCounter : WalkVisitor {
  explicit constexpr ParameterCounter(Place at) : place(at) { memory.make_dense(); }
  constexpr ParameterCounter(Place at, const ParameterLayout& empty) : place(at), memory(empty) {}

  Place place;
  ParameterLayout memory{1};
  std::size_t elements = 0;
  GrowingList<std::size_t> uses{};  ///< room for the whole parameters that each layer uses
  TiedOfStages tied{};

  template <class R, bool Returns, class X>
  constexpr void redistribution(const Shape&) {}
  template <class L, Layout In, bool Returns>
  constexpr void layer(const L& layer, const Shape& in, const Shape&) {
    const bool is_of_stages = tied.begins_with<L>();
    constexpr bool has_parameters = std::tuple_size_v<parameters_t<L, In>> != 0;
    const bool owns = !borrows_parameters<L> || is_of_stages;
    std::size_t used = 0;
    for_each_parameter<L, In>(layer, in, [&](const ParameterSpec& spec, auto use) {
      using Use = typename decltype(use)::type;
      const std::size_t here = local_shape<typename Use::stored>(spec.shape, place).elements();
      used += memory.padded(here);
      if (!owns) return;
      elements += here;
      memory.reserve(here, is_of_stages ? on_stages(holding_of<Use>) : holding_of<Use>,
                     spec.decays);
    });
    if (has_parameters) uses.add(used);
  }

  /// The most bytes, besides those of what it stores, that a rank has for a backward at a time: of
  /// the gradients of a layer if it stores a share of these; if it stores a share of the
  /// parameters, of those of the layer and of so many layers before it, in elements of `bytes`
  /// bytes; and of the gradients of the layer behind it, in elements of `bytes_under_way` bytes.
  constexpr std::size_t gathered(std::size_t bytes, bool has_gradient_share, std::size_t ahead,
                                 std::size_t bytes_under_way) const {
    std::size_t most = 0;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      std::size_t here = has_gradient_share ? uses[i] * bytes : 0;
      if (memory.stores_share())
        for (std::size_t j = 0; j <= ahead && j <= i; ++j) here += uses[i - j] * bytes;
      if (i + 1 < uses.size()) here += uses[i + 1] * bytes_under_way;
      if (here > most) most = here;
    }
    return most;
  }
};

/// Counts the parameters of all layers of a model.
template <class E, class L>
constexpr void count_parameters(ParameterCounter& counter, const L& model,
                                const shapes_t<typename E::offered>& in) {
  counter.tied.begin(model);
  walk<E, Train>(model, in, counter);
}

}  // namespace detail

/// Elements of parameters on the rank at `place`; a sharded parameter counts with the rank's block.
template <class E, class L>
constexpr std::size_t parameters_of_rank(const L& model, Place place,
                                         const shapes_t<typename E::offered>& in) {
  detail::ParameterCounter counter(place);
  detail::count_parameters<E>(counter, model, in);
  return counter.elements;
}

/// Those of which an optimizer with this Keep updates the values and keeps the moments on the rank
/// at `place` of a mesh. Groups of parameters, see ParameterLayout, are cut one by one.
template <class E, class L>
constexpr std::size_t updated_parameters_of_rank(const L& model, const MeshPlace& place,
                                                 const shapes_t<typename E::offered>& in,
                                                 Keep keep = Keep::whole) {
  detail::ParameterCounter counter(place[MeshAxis::tensor]);
  detail::count_parameters<E>(counter, model, in);
  if (!cuts_moments(keep)) return counter.elements;
  std::size_t elements = 0;
  for (const detail::Holding holding : detail::holdings)
    elements += block_of(counter.memory.elements_of(holding).size, place[MeshAxis::data]).size;
  return elements;
}

}  // namespace shardwise
