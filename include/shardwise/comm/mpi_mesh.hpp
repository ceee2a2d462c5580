#pragma once
// Runs a function on a mesh of ranks that are the processes of an MPI job.

#include <functional>

#include "shardwise/comm/detail/rank_function.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/mpi.hpp"
#include "shardwise/comm/mpi_options.hpp"
#include "shardwise/comm/mpi_ranks.hpp"
#include "shardwise/core/mesh.hpp"

namespace shardwise {

/// Calls f(MeshRanks<MpiCommunicator>&) in every process of the job, as run_mpi_ranks does. The
/// size of one axis may be `mesh::rest`.
///
///     run_mpi_mesh({.data = 2, .tensor = mesh::rest},
///                  [](MeshRanks<MpiCommunicator>& ranks) { ... });
///
/// `order` names all five axes, the outermost first; by default it is `mesh_axes`.
///
/// If ranks were given different meshes, if the sizes do not multiply to the number of processes,
/// or if f throws, the whole job ends, with the cause on stderr.
template <class F>
void run_mpi_mesh(const mesh& sizes, F f, const MeshOrder& order = mesh_axes,
                  MpiOptions options = {}) {
  static_assert(detail::must_take_rank<F, MeshRanks<MpiCommunicator>>());
  run_mpi_ranks(
      [&](MpiCommunicator& world) {
        MeshRanks<MpiCommunicator> ranks(world, sizes, order);
        std::invoke(f, ranks);
      },
      options);
}

}  // namespace shardwise
