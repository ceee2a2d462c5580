#pragma once
// The memory of each rank for a model in training, known before it runs.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/model/over_context.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/rows_over_context.hpp"
#include "shardwise/model/walk.hpp"

namespace shardwise {

/// The memory of one rank for a model in training, in elements: its parameters, their gradients,
/// and the values that layers save for backward. A rank needs more: this does not count the moments
/// of an optimizer (see state_of_rank), what layers save besides inputs and outputs, such as a few
/// numbers for each row or channel of a normalisation, or a tap for each output of a MaxPool2d, and
/// memory within a step: values that no layer saves, also gathered ones, their gradients,
/// weights packed by a backend, its copies of the images of one convolution, and the model's Pool.
struct RankMemory {
  std::size_t parameters = 0;  ///< and as many gradients
  std::size_t saved = 0;       ///< of layers' inputs and outputs, from forward until backward
  /// Of the block of a Recompute during its backward: the most of all blocks.
  std::size_t recomputed = 0;

  /// Bytes of parameters, gradients, and saved and recomputed values, if all are of this dtype.
  constexpr std::size_t bytes(Dtype dtype = Dtype::float32) const {
    return (2 * parameters + saved + recomputed) * size_of(dtype);
  }

  friend constexpr bool operator==(const RankMemory&, const RankMemory&) = default;
};

/// The memory of each of `Ranks` ranks.
template <int Ranks>
class MemoryOfRanks {
 public:
  ///@{
  /// Of one rank.
  constexpr const RankMemory& operator[](int rank) const {
    return ranks_[static_cast<std::size_t>(rank)];
  }
  constexpr RankMemory& operator[](int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  ///@}

  ///@{
  /// The rank with the most, and the rank with the least memory.
  constexpr RankMemory largest() const {
    RankMemory found = ranks_[0];
    for (const RankMemory& one : ranks_)
      if (one.bytes() > found.bytes()) found = one;
    return found;
  }
  constexpr RankMemory smallest() const {
    RankMemory found = ranks_[0];
    for (const RankMemory& one : ranks_)
      if (one.bytes() < found.bytes()) found = one;
    return found;
  }
  ///@}

  /// Bytes of all ranks together.
  constexpr std::size_t bytes(Dtype dtype = Dtype::float32) const {
    std::size_t sum = 0;
    for (const RankMemory& one : ranks_) sum += one.bytes(dtype);
    return sum;
  }

  /// The most memory of a rank, divided by the average of all ranks: 1 if all have the same,
  /// `Ranks` if one has everything.
  constexpr double imbalance() const {
    const std::size_t sum = bytes();
    return sum == 0 ? 1 : static_cast<double>(largest().bytes()) * Ranks / static_cast<double>(sum);
  }

 private:
  std::array<RankMemory, static_cast<std::size_t>(Ranks)> ranks_;
};

namespace detail {

/// Adds up the memory of the rank at `place`. A tensor that several layers save counts once,
/// whether as output or as input. A model's input is in the caller's memory and does not count.
class MemoryVisitor : public WalkVisitor {
  /// As in RankMemory.
  struct Values {
    std::size_t saved = 0;
    std::size_t recomputed = 0;
  };

 public:
  /// The state of the tensor that the last layer gave.
  struct Position {
    std::uint8_t is_kept = 0;  ///< whether it is already counted, if only one layer reads it
    std::size_t fork = 0;  ///< the number of the fork at which several layers read it; 0 for none
  };

  explicit constexpr MemoryVisitor(const MeshPlace& place)
      : place_(place),
        has_slices_(place[MeshAxis::data].size * place[MeshAxis::replica].size *
                        place[MeshAxis::context].size >
                    1),
        parameters_(place[MeshAxis::tensor]) {}

  /// Before the walk through these layers.
  template <class L>
  constexpr void begin(const L& layers) {
    parameters_.tied.begin(layers);
  }
  constexpr RankMemory result() const {
    return {parameters_.elements, values_.saved, values_.recomputed};
  }

  template <Layout L>
  constexpr void input(const Shape&) {
    here_ = {1};
  }

  constexpr Position position() const { return here_; }
  constexpr void go_to(Position there) { here_ = there; }
  constexpr void fork() {
    is_kept_at_.add(here_.is_kept);
    here_ = {0, is_kept_at_.size()};
  }

  template <class R, bool Returns, class X>
  constexpr void redistribution(const Shape&) {
    if (R::movement != Movement::none) here_ = {};
  }

  constexpr int context() const { return along().size; }
  /// A move makes another tensor, too.
  template <class R, Layout L, bool Returns>
  constexpr void over_context(const Shape& shape) {
    if (!stays_in_place<R>(shape, context())) here_ = {};
  }

  /// A block that is recomputed saves its input, and its other values only while it runs again.
  template <bool Returns, Layout In, class L>
  constexpr Values open(const L&, const Shape& in) {
    if constexpr (Returns && Recomputes<L>) {
      keep<In>(in);
      const Values around = values_;
      values_ = {};
      return around;
    } else {
      return {};
    }
  }
  template <bool Returns, class L>
  constexpr void close(const Values& around) {
    if constexpr (Returns && Recomputes<L>) {
      const std::size_t again = values_.saved + values_.recomputed;
      values_ = {around.saved, again > around.recomputed ? again : around.recomputed};
      here_.is_kept = 0;
    }
  }

  template <class L, Layout In, bool Returns>
  constexpr void layer(const L& layer, const Shape& in, const Shape& out) {
    parameters_.template layer<L, In, Returns>(layer, in, out);
    if constexpr (!only_reshapes<L>) {
      if constexpr (Returns && L::saves == Saves::input) keep<In>(in, taken_by<L>(in));
      here_ = {};
      if constexpr (Returns && L::saves == Saves::output)
        keep<typename L::template output_layout<In>>(out);
    }
  }

  template <class Op, Layout In, bool Returns, std::size_t N>
  constexpr void merge(const std::array<Position, N>& operands, const std::array<Shape, N>& in,
                       const Shape&) {
    if constexpr (Returns && Op::saves == Saves::input) {
      [&]<std::size_t... Js>(std::index_sequence<Js...>) {
        ((go_to(operands[Js]),
          keep<operand_t<Op, Js, In>>(in[Js], taken_by<Op, Js>(in[0], in[Js]))),
         ...);
      }
      (std::make_index_sequence<N>{});
    }
    here_ = {};
  }

 private:
  constexpr const Place& along() const { return place_[MeshAxis::context]; }

  ///@{
  /// How several ranks along `context` have a tensor: between layers, as a layer takes it, and
  /// operand J of a merge.
  constexpr LayoutValue between_layers(const Shape& shape) const {
    if (along().size == 1) return {};
    return {LayoutValue::Kind::sharded, axis_over_context(shape)};
  }
  template <class L>
  constexpr LayoutValue taken_by(const Shape& in) const {
    LayoutValue taken = between_layers(in);
    if (along().size == 1) return taken;
    if constexpr (MovesRows<L>)
      for_rows_taken<L>(in, along().size, [&]<class R>() { taken = layout_value<typename R::to>; });
    return taken;
  }
  template <class Op, std::size_t J>
  constexpr LayoutValue taken_by(const Shape& first, const Shape& shape) const {
    LayoutValue taken = between_layers(shape);
    if (along().size == 1) return taken;
    for_over_context<Op, J>(axis_over_context(first), axis_over_context(shape),
                            [&]<class R>() { taken = layout_value<typename R::to>; });
    return taken;
  }
  ///@}

  template <Layout L>
  constexpr void keep(const Shape& shape) {
    keep<L>(shape, between_layers(shape));
  }
  template <Layout L>
  constexpr void keep(const Shape& shape, const LayoutValue& over_context) {
    std::uint8_t& is_kept = here_.fork > 0 ? is_kept_at_[here_.fork - 1] : here_.is_kept;
    if (is_kept == 0) values_.saved += elements_of<L>(shape, over_context);
    is_kept = 1;
  }

  template <Layout L>
  constexpr std::size_t elements_of(const Shape& shape, const LayoutValue& over_context) const {
    if (!has_slices_) return local_shape<L>(shape, place_[MeshAxis::tensor]).elements();
    MeshLayoutValue layout = layout_value<SamplesOverMesh<L>>;
    layout[MeshAxis::context] = over_context;
    return detail::local_shape(layout, shape, place_).elements();
  }

  MeshPlace place_;
  bool has_slices_;  // whether ranks have different samples, tokens or rows
  ParameterCounter parameters_;
  Values values_;
  Position here_;
  GrowingList<std::uint8_t> is_kept_at_;  // each fork
};

}  // namespace detail

///@{
/// The memory of the rank at `place` for `model` between the ends E, in training on inputs of shape
/// `in`; on a mesh that is the whole batch, and parameters are those of Keep::whole.
template <class E, class L, std::same_as<MeshPlace> P>
constexpr RankMemory memory_of_rank(const L& model, const P& place,
                                    const shapes_t<typename E::offered>& in) {
  detail::MemoryVisitor visitor(place);
  visitor.begin(model);
  detail::walk<detail::ends_along_tensor_t<E>, Train>(model, in, visitor);
  return visitor.result();
}
template <class E, class L>
constexpr RankMemory memory_of_rank(const L& model, Place place,
                                    const shapes_t<typename E::offered>& in) {
  MeshPlace along;
  along[MeshAxis::tensor] = place;
  return memory_of_rank<E>(model, along, in);
}
///@}

/// The memory of each of so many ranks of one axis, or of each rank of a mesh, for a model whose
/// sizes are all in its type, in training on a whole batch of the shape `in`, or on several inputs
/// with an array of shapes. Ranks of a mesh are numbered as `place_in` does.
template <class M, auto Ranks, EndLayout Offered = Invariant, EndLayout Wanted = Invariant>
constexpr auto memory_of(const shapes_t<Offered>& in) {
  const M model = detail::model_by_type<M>();
  constexpr mesh sizes = detail::mesh_of<Ranks>();
  constexpr int count = sizes.size();
  MemoryOfRanks<count> memory;
  for (int rank = 0; rank < count; ++rank) {
    if constexpr (std::integral<decltype(Ranks)>)  // compilers limit the steps of a constant
      memory[rank] = memory_of_rank<Ends<Offered, Wanted>>(model, Place{rank, Ranks}, in);
    else
      memory[rank] = memory_of_rank<Ends<Offered, Wanted>>(model, place_in(sizes, rank), in);
  }
  return memory;
}

/// The same for an input [batch, features], with the features that the model's first layer takes.
template <class M, auto Ranks, Layout Offered = Invariant, Layout Wanted = Invariant>
constexpr auto memory_of(batch samples) {
  return memory_of<M, Ranks, Offered, Wanted>(input_shape<M>(samples));
}

}  // namespace shardwise
