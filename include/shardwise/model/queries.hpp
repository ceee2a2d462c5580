#pragma once
// Facts about a model that the compiler knows, for static_assert: layouts, local shapes, messages,
// memory and its balance over the ranks.
//
//     struct Mlp : Sequential<ColumnParallelLinear<784, 512>, Relu, RowParallelLinear<512, 10>> {};
//
//     static_assert(std::same_as<layer_output_layout_t<Mlp, 0>, Sharded<Axis::feature>>);
//     static_assert(plan<Mlp, 8>(batch{512}).forward == collectives{all_reduce(512 * 10)});
//     static_assert(plan<Mlp, 8>(batch{512}).bytes_sent() < 4_MiB);
//     static_assert(memory_of<Mlp, 8>(batch{512}).largest().bytes() < 3_MiB);
//     static_assert(memory_of<Mlp, 8>(batch{512}).imbalance() < 1.01);
//
//   question                                     answer
//   output_layout_t<M, Offered, Wanted>          the layout of a model's output
//   layer_input_layout_t<M, Index>               the input layout of layer Index
//   layer_output_layout_t<M, Index>              the output layout of layer Index
//   input_shape<M>(batch)                        the global shape of the input
//   M{}.output_shape(shape)                      the global shape of the output
//   local_shape<L>(shape, place)                 the shape of a rank's part of a tensor in layout L
//   plan<M, P>(batch or shape, dtypes)           the collectives of a step, and their bytes
//   memory_of<M, P>(batch or shape)              the memory of each rank, and its balance
//   updated_parameters_of_rank<E>(M{}, place, shape, keep)
//                                                the parameters whose moments a rank of a mesh
//                                                keeps
//   state_of_rank<E, dtypes>(M{}, place, shape, moments, keep)
//                                                the bytes that a rank allocates for parameters,
//                                                gradients and moments
//
// All take the layouts of the two ends after their other arguments; the default is Invariant. They
// also work for your own layers if output_shape, parameter_specs and exchange_shapes are constexpr.
// For a model whose sizes are given at run time, the functions plan_of, parameters_of_rank and
// memory_of_rank compute the same for an object, at run time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "shardwise/core/bytes.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"

namespace shardwise {

/// The layout in which layer Index of the Sequential M takes its input.
template <class M, std::size_t Index, Layout Offered = Invariant, Layout Wanted = Invariant>
using layer_input_layout_t =
    input_layout_at_t<typename M::template layer_type<Index>,
                      typename M::template ends_of<Index, Offered, Wanted>>;

/// The layout in which layer Index of the Sequential M gives its output, before any redistribution.
template <class M, std::size_t Index, Layout Offered = Invariant, Layout Wanted = Invariant>
using layer_output_layout_t =
    output_layout_at_t<typename M::template layer_type<Index>,
                       typename M::template ends_of<Index, Offered, Wanted>>;

/// The shape [batch, features] of the input of M, with the features that its first layer takes.
template <class M>
constexpr Shape input_shape(batch samples) {
  return detail::complete_input(detail::model_by_type<M>(), Shape{{Axis::batch, samples.size}});
}

/// The memory of one rank for a model in training, in elements: its parameters, their gradients,
/// and the values that layers save for backward. A rank needs more: this does not count the moments
/// of an optimizer (see state_of_rank), the few numbers for each row or channel of normalisations,
/// and memory within a step: values that no layer saves, also gathered ones, their gradients,
/// weights packed by a backend, and the model's Pool.
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
  static_assert(detail::must_be_rank_count<Ranks>());

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
  std::array<RankMemory, static_cast<std::size_t>(Ranks)> ranks_{};
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

  explicit constexpr MemoryVisitor(Place place) : place_(place), parameters_(place) {}

  /// Before the walk through these layers.
  template <class L>
  constexpr void begin(const L& layers) {
    parameters_.shared.begin(layers);
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
      if constexpr (Returns && L::saves == Saves::input) keep<In>(in);
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
        ((go_to(operands[Js]), keep<operand_t<Op, Js, In>>(in[Js])), ...);
      }
      (std::make_index_sequence<N>{});
    }
    here_ = {};
  }

 private:
  template <Layout L>
  constexpr void keep(const Shape& shape) {
    std::uint8_t& is_kept = here_.fork > 0 ? is_kept_at_[here_.fork - 1] : here_.is_kept;
    if (is_kept == 0) values_.saved += local_shape<L>(shape, place_).elements();
    is_kept = 1;
  }

  Place place_;
  ParameterCounter parameters_;
  Values values_;
  Position here_;
  GrowingList<std::uint8_t> is_kept_at_;  // each fork
};

}  // namespace detail

/// The memory of the rank at `place` for `model` between the ends E, in training on inputs of shape
/// `in`.
template <class E, class L>
constexpr RankMemory memory_of_rank(const L& model, Place place,
                                    const shapes_t<typename E::offered>& in) {
  detail::MemoryVisitor visitor(place);
  visitor.begin(model);
  detail::walk<E, Train>(model, in, visitor);
  return visitor.result();
}

/// The memory of each of `Ranks` ranks for a model whose sizes are all in its type, in training on
/// inputs of the global shape `in`, or on several inputs with an array of shapes.
template <class M, int Ranks, EndLayout Offered = Invariant, EndLayout Wanted = Invariant>
constexpr MemoryOfRanks<Ranks> memory_of(const shapes_t<Offered>& in) {
  const M model = detail::model_by_type<M>();
  MemoryOfRanks<Ranks> memory;
  for (int rank = 0; rank < Ranks; ++rank)
    memory[rank] = memory_of_rank<Ends<Offered, Wanted>>(model, {rank, Ranks}, in);
  return memory;
}

/// The same for an input [batch, features], with the features that the model's first layer takes.
template <class M, int Ranks, Layout Offered = Invariant, Layout Wanted = Invariant>
constexpr MemoryOfRanks<Ranks> memory_of(batch samples) {
  return memory_of<M, Ranks, Offered, Wanted>(input_shape<M>(samples));
}

/// The bytes that a model in training and its optimizer allocate on one rank for parameters and for
/// what belongs to each of them, from step to step.
struct StateMemory {
  std::size_t parameters = 0;  ///< that the optimizer updates
  std::size_t copies = 0;      ///< of parameters, for layers, if layers compute in another dtype
  std::size_t gradients = 0;   ///< the sums over the batches of a step
  std::size_t of_batch = 0;    ///< gradients of one batch, if layers compute in another dtype
  std::size_t moments = 0;     ///< of the optimizer
  /// While a layer runs backward, with Keep::all_over_data: of its whole parameters and their
  /// gradients, and of the parameters that PrefetchedParameters gather ahead of it, where these are
  /// the most.
  std::size_t gathered = 0;

  /// All of them.
  constexpr std::size_t bytes() const {
    return parameters + copies + gradients + of_batch + moments + gathered;
  }

  friend constexpr bool operator==(const StateMemory&, const StateMemory&) = default;
};

namespace detail {

/// Of the counted parameters; the optimizer keeps the moments of `updated` elements.
template <class P>
constexpr StateMemory state_of(const ParameterCounter& counter, std::size_t updated,
                               std::size_t moments, std::size_t layers_ahead = 0) {
  using Memory = ParameterMemory<P>;
  constexpr std::size_t compute = sizeof(typename Memory::compute);
  const std::size_t size = counter.memory.size();
  const bool is_share = counter.memory.stores_share();
  return {size * sizeof(typename Memory::parameter),
          Memory::copies ? size * compute : 0,
          size * sizeof(typename Memory::gradient),
          Memory::collects && !is_share ? size * compute : 0,
          updated * moments * sizeof(accumulate_t<typename Memory::parameter>),
          is_share ? counter.gathered(layers_ahead) * compute : 0};
}

}  // namespace detail

/// The state of a rank that is on no mesh, for a model that computes as the PrecisionChoice P says.
/// `moments` are the numbers that the optimizer's rule keeps for each element, as
/// `AdamW{}.moments()`. The gaps in front of parameters that begin at cache lines count, too.
template <class E, class P, class L>
constexpr StateMemory state_of_rank(const L& model, Place place,
                                    const shapes_t<typename E::offered>& in, std::size_t moments) {
  using Dtypes = typename detail::precision_of<P>::type;
  detail::ParameterCounter counter(place, ParameterMemory<Dtypes>::empty_layout());
  detail::count_parameters<E>(counter, model, in);
  return detail::state_of<Dtypes>(counter, counter.memory.size(), moments);
}

/// The same for the rank at `place` of a mesh, with an optimizer that has this Keep: there gaps are
/// only between the groups of parameters, and moments of a share have none. `layers_ahead` is that
/// of the model's PrefetchedParameters.
template <class E, class P, class L>
constexpr StateMemory state_of_rank(const L& model, const MeshPlace& place,
                                    const shapes_t<typename E::offered>& in, std::size_t moments,
                                    Keep keep = Keep::whole, std::size_t layers_ahead = 0) {
  using Dtypes = typename detail::precision_of<P>::type;
  ParameterLayout empty = ParameterMemory<Dtypes>::empty_layout();
  empty.make_dense();
  if (keep == Keep::all_over_data) empty.store_share(place[MeshAxis::data]);
  detail::ParameterCounter counter(place[MeshAxis::tensor], empty);
  detail::count_parameters<E>(counter, model, in);
  const bool is_cut = keep == Keep::state_over_data && place[MeshAxis::data].size > 1;
  const std::size_t updated =
      is_cut ? updated_parameters_of_rank<E>(model, place, in, keep) : counter.memory.size();
  return detail::state_of<Dtypes>(counter, updated, moments, layers_ahead);
}

}  // namespace shardwise
