#pragma once
// The shares of a model's parameters that the ranks along `data` of a mesh update.

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

/// What a rank updates of some neighbouring elements of a model's values.
struct Share {
  Interval all;            ///< the elements, of which this is a share
  Interval mine;           ///< those that the rank updates
  std::size_t before = 0;  ///< elements that it updates in the shares before
};

/// What a rank updates: a share of each group of parameters, by Holding; or all elements, which are
/// then the first share.
struct Shares {
  std::array<Share, holdings.size()> of{};  ///< the shares
  /// Room for the elements of each rank along `data` in a collective; empty if nothing is cut.
  std::vector<std::size_t> counts{};

  bool are_cut() const { return !counts.empty(); }

  /// Sets `counts` to the elements of `piece` of each rank's share of these elements, and returns
  /// their sum.
  std::size_t count(const Interval& all, const Interval& piece) {
    const int ranks = static_cast<int>(counts.size());
    std::size_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank)
      sum += counts[static_cast<std::size_t>(rank)] =
          overlap({0, block_of(all.size, {rank, ranks}).size}, piece).size;
    return sum;
  }
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
  require_kept_by_model(keep, run.keep);
  return keep;
}

/// The share of a group that the rank at `along` updates, as elements of a model's values. It may
/// begin and end inside a parameter.
inline Interval share_of(const Interval& group, Place along) {
  const Interval mine = block_of(group.size, along);
  return {group.offset + mine.offset, mine.size};
}

/// What the optimizer of this rank updates.
template <class Context>
Shares shares_of(const Run<Context>& run, [[maybe_unused]] Keep keep) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const Place along = run.all_ranks.place()[MeshAxis::data];
    if (keep == Keep::state_over_data && along.size > 1) {
      Shares shares;
      std::size_t before = 0;
      for (const Holding holding : holdings) {
        const Interval all = run.parameters.elements_of(holding);
        Share& one = shares.of[static_cast<std::size_t>(holding)];
        one = {all, share_of(all, along), before};
        before += one.mine.size;
      }
      shares.counts.resize(static_cast<std::size_t>(along.size));
      return shares;
    }
  }
  const Interval all{0, run.parameters.size()};
  return {{Share{all, all}}};
}

/// Gives the new values of each rank to the others along `data`.
template <class Context>
void gather_shares([[maybe_unused]] Run<Context>& run, [[maybe_unused]] Shares& shares) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    using T = typename Context::precision::parameter;
    if (!shares.are_cut()) return;
    for (const Share& one : shares.of) {
      if (shares.count(one.all, {0, one.all.size}) == 0) continue;
      const std::span<T> values = run.parameters.values();
      const std::span<const T> mine = values.subspan(one.mine.offset, one.mine.size);
      observed(
          run, [] { return std::string("updated parameters"); },
          shardwise::all_gather(one.all.size, dtype_v<T>).over(MeshAxis::data),
          [&] {
            run.all_ranks.along(MeshAxis::data)
                .all_gather(mine, values.subspan(one.all.offset, one.all.size), shares.counts);
          });
    }
  }
}

}  // namespace shardwise::detail
