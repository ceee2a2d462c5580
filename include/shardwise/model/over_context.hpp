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
#include "shardwise/model/other_axes.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/redistribute.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise::detail {

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

/// Whether Op runs where its first operand is cut by First, and reads more of operand J than its
/// slice.
template <class Op, std::size_t J, Axis First>
inline constexpr bool needs_others =
    RuleOfRows<Op, First>::runs && !std::same_as<operand_t<Op, J, Sharded<First>>, Sharded<First>>;
template <class Op, std::size_t J>
inline constexpr bool may_need_others =
    needs_others<Op, J, Axis::sequence> || needs_others<Op, J, Axis::height>;

/// Calls f.operator()<R>() for the R that brings operand J of the merge Op over `context` to where
/// Op takes it, if that needs more than its slice; `first` and `own` are the axes that cut the
/// first operand and operand J there.
template <class Op, std::size_t J, class F>
constexpr void for_over_context([[maybe_unused]] Axis first, [[maybe_unused]] Axis own, F&& f) {
  const auto from = [&]<Axis First, Axis Own>() {
    if constexpr (needs_others<Op, J, First>)
      if (first == First && own == Own)
        f.template operator()<Redistribute<Sharded<Own>, operand_t<Op, J, Sharded<First>>>>();
  };
  from.template operator()<Axis::sequence, Axis::sequence>();
  from.template operator()<Axis::height, Axis::height>();
  from.template operator()<Axis::height, Axis::batch>();
}

/// throws   argument_error if the merge Op takes the slice that a rank has of operand J beside that
///          of the first one, and ranks have other tokens, rows or samples of it
template <class Op, std::size_t J, class Context>
void require_same_slice([[maybe_unused]] const Run<Context>& run,
                        [[maybe_unused]] const Shape& first, [[maybe_unused]] const Shape& own) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const mesh& sizes = run.all_ranks.sizes();
    if (sizes.context == 1 || first.rank() == 0 || own.rank() == 0) return;
    const Axis cut = axis_over_context(first), other = axis_over_context(own);
    bool moves = false;
    for_over_context<Op, J>(cut, other, [&]<class R>() { moves = true; });
    if (moves || (other == cut && extent_of(own, cut) == extent_of(first, cut))) return;
    throw argument_error({"operand ", J, " is ", own, " beside ", first, ", and on the mesh ",
                          sizes,
                          " ranks along context have other parts of it than of the first one. Say "
                          "by `operand` of the merge that it takes all of it, or give context one "
                          "rank"});
  }
}

/// Calls f with the position of the axis that L cuts, if it cuts one.
template <PlainLayout L, class F>
void at_cut(const Shape& shape, F&& f) {
  if constexpr (SplitLayout<L>) f(split_position<L>(shape));
}

/// The value after R over the ranks along `context`. Along `tensor` its layout stays; to the ranks
/// along `tensor` it becomes a tensor of other tokens, rows or samples than those of their slice.
/// `units` are the tokens or rows of a whole sample.
template <class R, class Context, class T, PlainLayout L>
Value<T, L> moved_over_context(Run<Context>& run, Value<T, L>&& value, std::size_t units) {
  const Place& along = run.all_ranks.place()[MeshAxis::context];
  const std::size_t samples =
      samples_along_context(run.pass.flight->batch[0], run.all_ranks.place());
  Shape all = value.view().local(), global = value.global();
  const auto at_cuts = [&](auto&& f) {
    at_cut<typename R::from>(all, f);
    at_cut<typename R::to>(all, f);
  };
  at_cuts([&](std::size_t i) { all[i].units = all[i].axis == Axis::batch ? samples : units; });
  if (stays_in_place<R>(all, along.size)) return std::move(value);
  const Shape after = local_shape<typename R::to>(all, along);
  at_cuts([&](std::size_t i) { global[i].units = after[i].units; });
  Value<T, L> result(run.pool, global, run.place());
  const auto redistributed = [&] {
    redistribute(run.backend, run.all_ranks.along(MeshAxis::context), run.pool,
                 View<const T, typename R::from>(value.view().data(), all, along),
                 View<T, typename R::to>(result.writable().data(), all, along));
  };
  const MarkedGiven without_slice(run.step.given_to_all);
  if (const auto made = collective_of<R>(all, dtype_v<T>)) {
    observed(run, name_of_redistribution<R>, made->over(MeshAxis::context), redistributed);
  } else {
    redistributed();
  }
  value.release();
  return result;
}

}  // namespace shardwise::detail
