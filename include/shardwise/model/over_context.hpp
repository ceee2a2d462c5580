#pragma once
// The operands of a merge on a mesh whose ranks along `context` have different tokens.

#include <concepts>
#include <cstddef>
#include <utility>

#include "shardwise/comm/mark.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/collective_of.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/redistribute.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise::detail {

[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_tokens(const mesh& sizes) {
  throw argument_error({"the layer may read several tokens of a sample, and on the mesh ", sizes,
                        " ranks along context have different ones. Give those ranks to another "
                        "axis; a layer whose result for a token depends on that token alone says "
                        "so by `token_by_token`"});
}

/// throws   argument_error for a layer or merge that may need tokens of other ranks
template <class L, class Context>
void require_token_by_token([[maybe_unused]] const Run<Context>& run) {
  if constexpr (MeshCommunicator<typename Context::communicator> && !computes_token_by_token<L>) {
    const mesh& sizes = run.all_ranks.sizes();
    if (sizes.context > 1) refuse_tokens(sizes);
  }
}

/// What brings operand J of the merge Op, which is cut by tokens, to where Op takes it: the rule of
/// Op for ranks that cut its first operand by tokens.
template <class Op, std::size_t J>
using OverContext =
    Redistribute<Sharded<Axis::sequence>, operand_t<Op, J, Sharded<Axis::sequence>>>;

/// throws   argument_error for an operand of a merge whose tokens lie with a halo along `tensor`,
///          where that halo is needed along `context`, too
template <PlainLayout L, class Context>
void require_no_halo_of_tokens([[maybe_unused]] const Run<Context>& run) {
  if constexpr (MeshCommunicator<typename Context::communicator> && SplitLayout<L>) {
    const mesh& sizes = run.all_ranks.sizes();
    if (L::axis == Axis::sequence && layout_value<L>.has_halo() && sizes.context > 1)
      throw argument_error({"an operand is ", layout_name<L>(), " along tensor, and on the mesh ",
                            sizes,
                            " its tokens are cut along context, too: a halo goes along one "
                            "axis only. Split the heads along tensor, or give context one rank"});
  }
}

/// Whether the tokens of one slice are not all that Op reads of operand J.
template <class Op, std::size_t J>
inline constexpr bool needs_tokens =
    !std::same_as<operand_t<Op, J, Sharded<Axis::sequence>>, Sharded<Axis::sequence>>;

/// The value after R over the ranks along `context`. Along `tensor` its layout stays; to the ranks
/// along `tensor` it becomes a tensor of other tokens than those of their slice.
template <class R, class Context, class T, PlainLayout L>
Value<T, L> moved_over_context(Run<Context>& run, Value<T, L>&& value) {
  const SliceOfBatch& slice = run.flight->slice;
  const std::size_t position = value.global().find(Axis::sequence);
  if (!slice.cuts_tokens() || position == value.global().rank()) return std::move(value);
  const Place& along = slice.context;
  Shape all = value.view().local();
  all[position].units = slice.tokens;
  if (stays_in_place<R>(all, along.size)) return std::move(value);
  Shape global = value.global();
  global[position].units = local_shape<typename R::to>(all, along)[position].units;
  Value<T, L> result(run.pool, global, run.place());
  const MarkedGiven without_slice(run.given_to_all);
  observed(run, name_of_redistribution<R>,
           collective_of<R>(all, dtype_v<T>)->over(MeshAxis::context), [&] {
             redistribute(run.backend, run.all_ranks.along(MeshAxis::context), run.pool,
                          View<const T, typename R::from>(value.view().data(), all, along),
                          View<T, typename R::to>(result.writable().data(), all, along));
           });
  value.release();
  return result;
}

}  // namespace shardwise::detail
