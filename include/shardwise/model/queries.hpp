#pragma once
// Facts about a model that the compiler knows, for static_assert: layouts, local shapes, messages,
// memory and its balance over the ranks.
//
//     struct Mlp : Sequential<ColumnParallelLinear<784, 512>, Relu, RowParallelLinear<512, 10>> {};
//
//     static_assert(std::same_as<layer_output_layout_t<Mlp, 0>, Sharded<Axis::feature>>);
//     static_assert(plan<Mlp, 8>(batch{512}).forward == CollectiveList{all_reduce(512 * 10)});
//     static_assert(plan<Mlp, 8>(batch{512}).bytes_sent() < 4_MiB);
//     static_assert(memory_of<Mlp, 8>(batch{512}).largest().bytes() < 3_MiB);
//     static_assert(memory_of<Mlp, 8>(batch{512}).imbalance() < 1.01);
//
// docs/tutorial/09-asking-the-compiler.md asks most of them; each has its own comment.
//
// All take the layouts of the two ends after their other arguments; the default is Invariant. They
// also work for your own layers if output_shape, parameter_specs and exchange_shapes are constexpr.
// For a model whose sizes are given at run time, the functions plan_of, parameters_of_rank and
// memory_of_rank compute the same for an object, at run time.

#include <cstddef>

#include "shardwise/core/bytes.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/rank_memory.hpp"

namespace shardwise {

/// The layout in which layer Index of the Sequential M takes its input.
template <class M, std::size_t Index, Layout Offered = Invariant, Layout Wanted = Invariant>
using layer_input_layout_t =
    detail::input_layout_at_t<typename M::template layer_type<Index>,
                              typename M::template ends_of<Index, Offered, Wanted>>;

/// The layout in which layer Index of the Sequential M gives its output, before any redistribution.
template <class M, std::size_t Index, Layout Offered = Invariant, Layout Wanted = Invariant>
using layer_output_layout_t =
    detail::output_layout_at_t<typename M::template layer_type<Index>,
                               typename M::template ends_of<Index, Offered, Wanted>>;

/// The bytes that a model in training and its optimizer allocate on one rank for parameters and for
/// what belongs to each of them, from step to step.
struct StateMemory {
  std::size_t parameters = 0;  ///< that the optimizer updates
  std::size_t copies = 0;      ///< of parameters, for layers, if layers compute in another dtype
  std::size_t gradients = 0;   ///< the sums over the batches of a step
  std::size_t of_batch = 0;    ///< gradients of one batch, if layers compute in another dtype
  std::size_t moments = 0;     ///< of the optimizer
  /// While a layer runs backward, where these are the most: with Keep::gradients_over_data of its
  /// gradients, and of those of the layer behind it that are summed meanwhile; with
  /// Keep::all_over_data also of its whole parameters and of those that are gathered
  /// ahead of it.
  std::size_t gathered = 0;

  /// All of them.
  constexpr std::size_t bytes() const {
    return parameters + copies + gradients + of_batch + moments + gathered;
  }

  friend constexpr bool operator==(const StateMemory&, const StateMemory&) = default;
};

namespace detail {

/// Of the counted parameters, whose gradients have this order; the optimizer keeps the moments of
/// `updated` elements.
template <class P>
constexpr StateMemory state_of(const ParameterCounter& counter, const ParameterLayout& of_gradients,
                               std::size_t updated, std::size_t moments,
                               std::size_t layers_ahead = 0, bool sums_meanwhile = false) {
  using Memory = ParameterMemory<P>;
  constexpr std::size_t compute = sizeof(typename Memory::compute);
  const std::size_t size = counter.memory.size();
  const bool is_share = of_gradients.stores_share();
  return {size * sizeof(typename Memory::parameter),
          Memory::copies ? size * compute : 0,
          of_gradients.size() * sizeof(typename Memory::gradient),
          Memory::collects && !is_share ? size * compute : 0,
          updated * moments * sizeof(accumulate_t<typename Memory::parameter>),
          counter.gathered(compute, is_share, layers_ahead,
                           is_share && sums_meanwhile ? sizeof(typename P::reduce) : 0)};
}

}  // namespace detail

/// The state of a rank that is on no mesh, for a model that computes as the PrecisionChoice P says.
/// `moments` are the numbers that the optimizer's rule keeps for each element, as
/// `AdamW{}.moments()`. The gaps in front of parameters that begin at cache lines count, too.
template <class E, class P, class L>
constexpr StateMemory state_of_rank(const L& model, Place place,
                                    const shapes_t<typename E::offered>& in, std::size_t moments) {
  using Dtypes = typename detail::precision_of<P>::type;
  detail::ParameterCounter counter(place, detail::ParameterMemory<Dtypes>::empty_layout());
  detail::count_parameters<E>(counter, model, in);
  return detail::state_of<Dtypes>(counter, counter.memory, counter.memory.size(), moments);
}

/// The same for the rank at `place` of a mesh, with an optimizer that has this Keep: there gaps are
/// only between the groups of parameters, and moments of a share have none. `layers_ahead`
/// and `sums_meanwhile` are those of its ModelOptions.
template <class E, class P, class L>
constexpr StateMemory state_of_rank(const L& model, const MeshPlace& place,
                                    const shapes_t<typename E::offered>& in, std::size_t moments,
                                    Keep keep = Keep::whole, std::size_t layers_ahead = 0,
                                    bool sums_meanwhile = false) {
  using Dtypes = typename detail::precision_of<P>::type;
  detail::ParameterLayout empty = detail::ParameterMemory<Dtypes>::empty_layout();
  empty.make_dense();
  if (cuts_parameters(keep)) empty.store_share(place[MeshAxis::data]);
  detail::ParameterCounter counter(place[MeshAxis::tensor], empty);
  detail::count_parameters<E>(counter, model, in);
  const Place of_gradients = cuts_gradients(keep) ? place[MeshAxis::data] : Place{};
  const bool is_cut = detail::gathers_updated(keep) && place[MeshAxis::data].size > 1;
  const std::size_t updated =
      is_cut ? updated_parameters_of_rank<E>(model, place, in, keep) : counter.memory.size();
  return detail::state_of<Dtypes>(counter, counter.memory.share_at(of_gradients), updated, moments,
                                  layers_ahead, sums_meanwhile);
}

}  // namespace shardwise
