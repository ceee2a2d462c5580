#pragma once
// The collectives that a model will call, known before it runs.

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/mesh.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/collective_of.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/layer_checks.hpp"
#include "shardwise/model/plan_entries.hpp"
#include "shardwise/model/recompute.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/settle_moves.hpp"
#include "shardwise/model/tied.hpp"
#include "shardwise/model/tied_of_stages.hpp"
#include "shardwise/model/walk.hpp"

namespace shardwise {

namespace detail {

/// The mesh of a number of ranks, which are along `tensor`, or of a mesh.
template <auto Ranks>
consteval mesh mesh_of() {
  if constexpr (std::same_as<std::remove_const_t<decltype(Ranks)>, mesh>) {
    return Ranks;
  } else {
    static_assert(Ranks >= 1,
                  "a model is asked about on Ranks ranks, of which there must be at least 1: "
                  "plan<Mlp, 4>(batch{64}).");
    return {.tensor = Ranks};
  }
}

/// The model L, if its type has all of its sizes.
template <class L>
constexpr L model_by_type() {
  static_assert(must_be_layer<0, L>());
  static_assert(HasAllSizes<L>,
                "the type L leaves sizes open that are `dynamic`, so the compiler cannot say what "
                "it sends or holds. Put the sizes into the type, or make an object of it and ask "
                "that: plan_of<Ends<Invariant, Invariant>, Train>(model, ranks, shape).");
  return L{};
}

}  // namespace detail

/// The batch of a plan, for a model whose other extents are in its types.
struct batch {
  std::size_t size;  ///< samples of all ranks together
};

/// The shape [batch, features] of the input of M, with the features that its first layer takes.
template <class M>
constexpr Shape input_shape(batch samples) {
  return detail::complete_input(detail::model_by_type<M>(), Shape{{Axis::batch, samples.size}});
}

/// The collectives of one training step on a mesh, or on ranks of one axis, which is `tensor`.
/// Those along `tensor` do not depend on the number of ranks, but for exchanges of halos that are
/// not needed at this number, see `stays_in_place`; a model on `SingleRank` calls none of them.
/// Along the axes that cut samples there are none for one rank.
struct Plan {
  mesh sizes{};             ///< of the ranks of the model
  CollectiveList forward;   ///< of layers and between them
  CollectiveList backward;  ///< their adjoints
  CollectiveList settle;    ///< of gradients, once for each step
  CollectiveList loss;      ///< of the loss itself, such as its sum over ranks
  CollectiveList finish;    ///< of the end of a step: whether gradients overflowed, and their norm
  CollectiveList update;    ///< of parameters that ranks update for each other, see Keep

  /// Bytes that all ranks together send in one step, see `Collective::bytes_sent`.
  constexpr std::size_t bytes_sent() const {
    return forward.bytes_sent(sizes) + backward.bytes_sent(sizes) + settle.bytes_sent(sizes) +
           loss.bytes_sent(sizes) + finish.bytes_sent(sizes) + update.bytes_sent(sizes);
  }
};

namespace detail {

/// Calls f(spec, type of use) for every parameter that a layer uses, also for those that it
/// borrows.
template <class L, Layout In, class F>
constexpr void for_each_parameter(const L& layer, const Shape& in, F&& f) {
  using Parameters = parameters_t<L, In>;
  using Indices = std::make_index_sequence<std::tuple_size_v<Parameters>>;
  if constexpr (Indices::size() > 0) {
    const auto specs = layer.parameter_specs(in);
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (f(specs[Is], std::type_identity<std::tuple_element_t<Is, Parameters>>{}), ...);
    }
    (Indices{});
  }
}

/// Lists the collectives of forward, and in the same order their adjoints, which backward calls in
/// reverse order.
struct PlanVisitor : WalkVisitor {
  constexpr PlanVisitor(const Sending& sent, bool is_trained, const mesh& of_ranks,
                        Keep kept = Keep::whole)
      : sending(sent), trains(is_trained), sizes(of_ranks), keep(kept) {
    for (const Holding holding : holdings)
      for (int place = 0; place < (is_split(holding) ? sizes.tensor : 1); ++place)
        elements(holding).add(0);
  }
  constexpr PlanVisitor(const Sending& sent, bool is_trained, int ranks)
      : PlanVisitor(sent, is_trained, mesh{.tensor = ranks}) {}

  Sending sending;
  bool trains;
  mesh sizes;
  Keep keep = Keep::whole;  ///< of model and optimizer
  CollectiveList forward{};
  CollectiveList returning{};
  /// Elements of the parameters that are settled, by Holding: of the rank at each place along
  /// `tensor` if they are split.
  GrowingList<std::size_t> held[holdings.size()];
  TiedOfStages tied{};  ///< which parameters stages of a pipeline share

  template <class R, bool Returns, class X>
  constexpr void redistribution(const Shape& shape) {
    if (stays_in_place<R>(shape, sizes.tensor)) return;
    Dtype dtype = sending.values;
    if constexpr (!std::is_void_v<X>) dtype = dtype_v<X>;
    const Axis cut = axis_over_context(shape);
    add_redistribution<R>(forward, shape, dtype, sizes, cut);
    if constexpr (Returns) add_redistribution<adjoint_t<R>>(returning, shape, dtype, sizes, cut);
  }

  constexpr int context() const { return sizes.context; }
  template <class R, Layout L, bool Returns>
  constexpr void over_context(const Shape& shape) {
    if (stays_in_place<R>(shape, context())) return;
    add_over_context<R, L>(forward, shape);
    if constexpr (Returns) add_over_context<adjoint_t<R>, L>(returning, shape);
  }

  /// The calls before the composition.
  template <bool Returns, Layout In, class L>
  constexpr std::size_t open(const L&, const Shape&) const {
    return forward.size();
  }
  /// In backward, a block that is recomputed first calls again what it called since then.
  template <bool Returns, class L>
  constexpr void close(std::size_t before) {
    if constexpr (Returns && Recomputes<L>) {
      for (std::size_t i = forward.size(); i-- > before;) returning.add(forward[i]);
    }
  }

  template <class L, Layout In, bool Returns>
  constexpr void layer(const L& layer, const Shape& in, const Shape&) {
    using Exchanges = exchanges_on_mesh_t<L, In>;
    using Indices = std::make_index_sequence<std::tuple_size_v<exchanges_t<L, In>>>;
    CollectiveList used;  // whole parameters
    const bool is_of_stages = tied.begins_with<L>();
    for_each_parameter<L, In>(layer, in, [&](const ParameterSpec& spec, auto use) {
      using Use = typename decltype(use)::type;
      add_used(used, spec.shape.elements(), ShardedLayout<typename Use::stored>);
      if (is_of_stages || !borrows_parameters<L>) count<Use>(is_of_stages, spec.shape);
    });
    if (cuts_parameters(keep))
      for (const Collective& entry : used) forward.add(entry);
    if (Returns && cuts_gradients(keep)) add_reducing(used);
    if constexpr (Indices::size() > 0) {
      if (trains || !exchanges_in_training_only<L>) {
        const auto shapes = layer.exchange_shapes(in);
        const Axis cut = axis_over_context(in);
        add_exchanges<Exchanges>(forward, shapes, sending.exchanges(), sizes, cut, Indices{});
        if constexpr (Returns)
          add_adjoint_exchanges<Exchanges>(returning, shapes, sending.exchanges(), sizes, cut,
                                           Indices{});
      }
    }
    if (Returns && cuts_parameters(keep)) add_reversed(used);
  }

  /// Elements of one group.
  constexpr GrowingList<std::size_t>& elements(Holding holding) {
    return held[static_cast<std::size_t>(holding)];
  }

  /// The collectives of the gradients of the parameters so far.
  constexpr CollectiveList settling() {
    CollectiveList list;
    for_each_settled({stored_gradients(keep, sizes), used_gradients(keep, sizes)}, sizes, sending,
                     [&](Holding holding, const SettleMoves& moves) {
                       add_calls(list, moves, elements(holding), sizes, sending);
                     });
    return list;
  }

  /// The collectives by which ranks along `data` get the parameters that others of them updated.
  constexpr CollectiveList updating() {
    CollectiveList list;
    if (sizes.data == 1) return list;
    for (const Holding holding : holdings) {
      Collective entry = all_gather(0, sending.parameters).over(MeshAxis::data);
      for (const std::size_t here : elements(holding)) entry.elements += here;
      if (elements(holding).size() > 1) entry = entry.split_over(MeshAxis::tensor);
      if (entry.elements > 0) list.add(entry);
    }
    return list;
  }

 private:
  /// R along `context` on a tensor that is L along `tensor`.
  template <class R, Layout L>
  constexpr void add_over_context(CollectiveList& list, const Shape& shape) const {
    const auto made = collective_of<R>(shape, sending.values);
    if (!made) return;
    Collective entry = made->over(MeshAxis::context);
    for (const MeshAxis axis : {MeshAxis::data, MeshAxis::replica})
      if (sizes[axis] > 1) entry = entry.split_over(axis);
    if (SplitLayout<L> && sizes.tensor > 1) {  // of a halo, ranks hold some elements together
      entry = entry.split_over(MeshAxis::tensor);
      entry.elements = 0;
      for (int rank = 0; rank < sizes.tensor; ++rank)
        entry.elements += local_shape<L>(shape, {rank, sizes.tensor}).elements();
    }
    list.add(entry);
  }

  /// Adds the call by which ranks gather a parameter of which each has a share.
  constexpr void add_used(CollectiveList& list, std::size_t elements, bool is_split) const {
    if (sizes.data == 1 || elements == 0) return;
    const Collective entry = all_gather(elements, sending.values).over(MeshAxis::data);
    list.add(is_split && sizes.tensor > 1 ? entry.split_over(MeshAxis::tensor) : entry);
  }
  /// To `returning`, for reading backwards: the calls, or those that sum the gradients of the same
  /// parameters.
  constexpr void add_reversed(const CollectiveList& gathered) {
    for (std::size_t i = gathered.size(); i-- > 0;) returning.add(gathered[i]);
  }
  constexpr void add_reducing(const CollectiveList& gathered) {
    for (std::size_t i = gathered.size(); i-- > 0;) {
      Collective entry = gathered[i];
      entry.operation = Operation::reduce_scatter;
      entry.dtype = sending.gradients;
      returning.add(entry);
    }
  }

  template <class Use>
  constexpr void count(bool is_of_stages, const Shape& shape) {
    if (!owes_reduction<Use> && sample_ranks(sizes) == 1) return;
    constexpr Holding holding = holding_of<Use>;
    GrowingList<std::size_t>& here = elements(is_of_stages ? on_stages(holding) : holding);
    const int places = static_cast<int>(here.size());
    for (int place = 0; place < places; ++place)
      here[static_cast<std::size_t>(place)] +=
          local_shape<typename Use::stored>(shape, {place, places}).elements();
  }
};

}  // namespace detail

/// The plan of `model` between the ends E on inputs of shape `in`, the whole batch. It lists a
/// bucket for the rank with the most parameters: one that holds fewer may need fewer buckets, and
/// one that holds no element of a parameter along `tensor` neither gathers it nor scatters its
/// gradients. `keep` is that of the model and its optimizer.
template <class E, class Use, class L>
constexpr Plan plan_of(const L& model, const mesh& sizes, const shapes_t<typename E::offered>& in,
                       const Sending& sending = {}, Keep keep = Keep::whole) {
  detail::PlanVisitor visitor(sending, Use::trains, sizes, keep);
  visitor.tied.begin(model);
  detail::walk<detail::ends_along_tensor_t<E>, Use>(model, in, visitor);
  Plan plan;
  plan.sizes = sizes;
  plan.forward = visitor.forward;
  for (std::size_t i = visitor.returning.size(); i-- > 0;) plan.backward.add(visitor.returning[i]);
  if (Use::trains) plan.settle = visitor.settling();
  if (Use::trains && detail::gathers_updated(keep)) plan.update = visitor.updating();
  return plan;
}

/// The same on ranks of one axis.
template <class E, class Use, class L>
constexpr Plan plan_of(const L& model, int ranks, const shapes_t<typename E::offered>& in,
                       const Sending& sending = {}) {
  return plan_of<E, Use>(model, mesh{.tensor = ranks}, in, sending);
}

/// The plan of a model whose sizes are all in its type, on so many ranks of one axis or on a mesh:
/// `plan<Mlp, 8>(batch{64})`, `plan<Mlp, mesh{.data = 2, .tensor = 4}>(batch{64})`. `in` is the
/// global shape of its input; for several inputs, with `Layouts` for them, an array of their
/// shapes.
template <class L, auto Ranks, EndLayout Offered = Invariant, EndLayout Wanted = Invariant,
          bool InputGradient = false>
constexpr Plan plan(const shapes_t<Offered>& in, const Sending& sending = {},
                    Keep keep = Keep::whole) {
  using Use = std::conditional_t<InputGradient, TrainWithInputGradient, Train>;
  return plan_of<Ends<Offered, Wanted>, Use>(detail::model_by_type<L>(), detail::mesh_of<Ranks>(),
                                             in, sending, keep);
}

/// The same for an input [batch, features], with the features that the model's first layer takes.
template <class L, auto Ranks, Layout Offered = Invariant, Layout Wanted = Invariant,
          bool InputGradient = false>
constexpr Plan plan(batch samples, const Sending& sending = {}, Keep keep = Keep::whole) {
  return plan<L, Ranks, Offered, Wanted, InputGradient>(input_shape<L>(samples), sending, keep);
}

}  // namespace shardwise
