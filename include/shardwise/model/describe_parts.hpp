#pragma once
// Code that the table and the graph of a model share.

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"

namespace shardwise::detail {

inline std::string with_bytes(std::size_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

/// "all_reduce(640 x float32), 15360 bytes" for each collective of a list; empty for an empty list.
std::string listed(const CollectiveList& list, const mesh& sizes);

/// The position of a walk: "2.0.1".
class NumberedPath {
 public:
  const std::string& text() const { return text_; }

  void enter(std::size_t number) {
    lengths_.push_back(text_.size());
    append(text_, {text_.empty() ? "" : ".", number});
  }
  void leave() {
    text_.resize(lengths_.back());
    lengths_.pop_back();
  }

  /// The path and a name, or only the name if the path is empty.
  std::string with(const std::string& name) const {
    return text_.empty() ? name : text_ + ' ' + name;
  }

 private:
  std::string text_;
  std::vector<std::size_t> lengths_;
};

/// Where a rank is among those that have the same samples of a batch: `context`, along which they
/// have different tokens or rows, and `tensor`.
struct PlaceInSlice {
  Place context{};
  Place tensor{};

  /// What it and the ranks along `tensor` have of a tensor between layers.
  Shape part(const Shape& all) const;
  /// What it has.
  template <Layout L>
  Shape here(const Shape& all) const {
    return local_shape<L>(part(all), tensor);
  }
};
inline PlaceInSlice place_in_slice(const MeshPlace& place) {
  return {place[MeshAxis::context], place[MeshAxis::tensor]};
}
inline PlaceInSlice place_in_slice(const Place& place) { return {{}, place}; }

/// The collectives of a layer, and its parameters over all ranks and on the rank at `place`.
struct LayerFacts {
  PlanVisitor calls;
  std::size_t parameters = 0;
  std::size_t parameters_here = 0;
};

template <class L, Layout In, bool Returns>
LayerFacts facts_of(const L& layer, const Shape& all_in, const Shape& out,
                    const PlaceInSlice& place, const Sending& sending, bool trains) {
  // Exchanges do not depend on the number of rows, and a block may have too few for a window.
  const Shape in = axis_over_context(all_in) == Axis::height ? all_in : place.part(all_in);
  LayerFacts facts{PlanVisitor(sending, trains, place.tensor.size), 0, 0};
  ParameterCounter here(place.tensor);
  ParameterCounter alone({0, 1});
  facts.calls.layer<L, In, Returns>(layer, in, out);
  here.layer<L, In, Returns>(layer, in, out);
  alone.layer<L, In, Returns>(layer, in, out);
  facts.parameters = alone.elements;
  facts.parameters_here = here.elements;
  return facts;
}

inline std::string listed(const PlaceInSlice& place, const Shape& in) {
  return to_string(place.part(in));
}
template <std::size_t N>
std::string listed(const PlaceInSlice& place, const std::array<Shape, N>& in) {
  std::string text;
  for (const Shape& one : in) text += (text.empty() ? "" : " and ") + listed(place, one);
  return text;
}

///@{
/// The shapes of inputs that the ranks along `context` and `tensor` have together.
template <class Context>
Shape shapes_here([[maybe_unused]] const Run<Context>& run, const Shape& in) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    MeshLayoutValue layout = layout_value<SamplesOverMesh<Invariant>>;
    layout[MeshAxis::context] = {};
    return local_shape(layout, in, run.all_ranks.place());
  } else {
    return in;
  }
}
template <class Context, std::size_t N>
std::array<Shape, N> shapes_here(const Run<Context>& run, std::array<Shape, N> in) {
  for (Shape& one : in) one = shapes_here(run, one);
  return in;
}
///@}

/// "Mlp on [batch 64, feature 784] float32, rank 0 of 4"; on a mesh the place along each axis.
template <class L, class AnyPlace, class Shapes>
std::string heading(const AnyPlace& place, const Shapes& in, const Sending& sending) {
  return sentence({name_of<L>(), " on ", listed(place_in_slice(place), in), " ",
                   name(sending.values), ", ", place});
}

/// The collectives that reduce gradients and update parameters, and all bytes of a step: lines, the
/// last without a line end.
std::string totals(const Plan& plan);

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::string listed(const CollectiveList& list, const mesh& sizes) {
  std::string text;
  for (const Collective& entry : list) {
    if (!text.empty()) text += "; ";
    text += to_string(entry) + ", " + with_bytes(entry.bytes_sent(sizes));
  }
  return text;
}

SHARDWISE_INLINE Shape PlaceInSlice::part(const Shape& all) const {
  const Axis cut = axis_over_context(all);
  if (context.size == 1 || !all.has(cut) || !all[all.find(cut)].known()) return all;
  return with_extent_of(all, cut, block_of(extent_of(all, cut), context).size);
}

SHARDWISE_INLINE std::string totals(const Plan& plan) {
  const auto total = [&](const CollectiveList& list) {
    return with_bytes(list.bytes_sent(plan.sizes));
  };
  const std::string owed = listed(plan.settle, plan.sizes);
  const std::string updated = listed(plan.update, plan.sizes);
  return "gradients settle by " + (owed.empty() ? "nothing" : owed) +
         (updated.empty() ? "" : "\nparameters update by " + updated) +
         "\nin each step all ranks together send " + total(plan.forward) + " forward, " +
         total(plan.backward) + " backward, " + total(plan.settle) + " to settle" +
         (updated.empty() ? "" : ", " + total(plan.update) + " to update");
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
