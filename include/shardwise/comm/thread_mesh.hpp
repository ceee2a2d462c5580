#pragma once
// Runs a function on a mesh of ranks that are threads of this process.

#include "shardwise/comm/detail/rank_function.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/mesh.hpp"

namespace shardwise {

/// Calls f(MeshRanks<ThreadCommunicator>&) on as many threads as the mesh has ranks, as run_ranks
/// does. The first error of a rank reaches all ranks, in whichever group they wait.
///
///     run_mesh({.data = 2, .tensor = 4}, [](MeshRanks<ThreadCommunicator>& ranks) { ... });
///
/// `order` names all five axes, the outermost first; by default it is `mesh_axes`.
///
/// throws  argument_error if a size is below 1 or is `rest` (call sizes.on_ranks() first), or if
///         the order does not name each axis once; what run_ranks throws
template <class F>
void run_mesh(const mesh& sizes, F f, const MeshOrder& order = mesh_axes,
              ThreadOptions options = {}) {
  static_assert(detail::must_take_rank<F, MeshRanks<ThreadCommunicator>>());
  run_ranks(
      sizes.size(),
      [&](ThreadCommunicator& world) {
        MeshRanks<ThreadCommunicator> ranks(world, sizes, order);
        f(ranks);
      },
      options);
}

}  // namespace shardwise
