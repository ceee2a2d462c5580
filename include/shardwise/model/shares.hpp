#pragma once
// The shares of a model's parameters that the ranks along `data` of a mesh update.

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/location.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/settle_moves.hpp"
#include "shardwise/redistribute/packed.hpp"

namespace shardwise::detail {

/// What a rank updates of some neighbouring elements of a model's values.
struct Share {
  Interval all;            ///< the elements, of which this is a share
  Interval mine;           ///< those that the rank updates
  Interval gradients;      ///< the gradients of these in the model's gradients
  std::size_t before = 0;  ///< elements that it updates in the shares before
};

/// What a rank updates: a share of each group of parameters, by Holding; or all elements, which are
/// then the first share.
struct Shares {
  std::array<Share, holdings.size()> of;  ///< the shares
  bool are_cut = false;                   ///< whether ranks along `data` have others
};

/// The same Keep, if all ranks have it.
/// throws   argument_error if it cuts and the ranks are no mesh, or if the model was made with
///          another one that cuts otherwise; on a mesh collective_error, on every rank, if ranks
///          differ
template <class Context>
Keep agreed_keep(Run<Context>& run, Keep keep) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    require_agreed(gathered(run.ranks_of_all_stages(), keep), "what an Optimizer keeps");
  } else {
    require_whole("Optimizer", keep);
  }
  require_kept_by_model(keep, run.options.keep);
  return keep;
}

/// What the optimizer of this rank updates.
template <class Context>
Shares shares_of(const Run<Context>& run, [[maybe_unused]] Keep keep) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const Place along = run.all_ranks.place()[MeshAxis::data];
    if (gathers_updated(keep) && along.size > 1) {
      Shares shares;
      std::size_t before = 0;
      for (const Holding holding : holdings) {
        const Interval all = run.parameters.elements_of(holding);
        const Interval mine = share_of(all, along);
        const Interval gradients =
            cuts_gradients(keep) ? run.parameters.gradient_layout().elements_of(holding) : mine;
        Share& one = shares.of[static_cast<std::size_t>(holding)];
        one = {all, mine, gradients, before};
        before += one.mine.size;
      }
      shares.are_cut = true;
      return shares;
    }
  }
  const Interval all{0, run.parameters.size()};
  return {{Share{all, all, all}}};
}

/// Of these numbers, which ranks along `data` hold alike, each has its share; all get the others.
template <class Context, class T>
void gather_share(Run<Context>& run, std::string (*name)(), std::span<T> all) {
  if (all.empty()) return;
  const Place along = run.all_ranks.place()[MeshAxis::data];
  const Counts counts(run.pool, along.size, [&](int rank) {
    return block_of(all.size(), {rank, along.size}).size;
  });
  const Interval mine = block_of(all.size(), along);
  observed(run, name, shardwise::all_gather(all.size(), dtype_v<T>).over(MeshAxis::data), [&] {
    const std::span<const T> block = all.subspan(mine.offset, mine.size);
    run.all_ranks.along(MeshAxis::data).all_gather(block, all, counts);
  });
}

/// Gives the new values of each rank to the others along `data`. The rank has changed its own
/// before, so an error says that there is no way back.
template <class Context>
void gather_shares([[maybe_unused]] Run<Context>& run, [[maybe_unused]] const Shares& shares) {
  const DescribedLocation here(
      [] { return std::string("parameters are partly updated, so load the last checkpoint"); });
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    if (!shares.are_cut) return;
    for (const Share& one : shares.of)
      gather_share(
          run, [] { return std::string("updated parameters"); },
          run.parameters.values().subspan(one.all.offset, one.all.size));
  }
}

}  // namespace shardwise::detail
