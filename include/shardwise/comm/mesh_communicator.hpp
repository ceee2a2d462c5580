#pragma once
// A communicator whose ranks form a mesh, as algorithms see it.

#include <concepts>
#include <type_traits>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/mesh.hpp"

namespace shardwise {

/// A communicator whose ranks form a mesh: MeshRanks of any communicator.
template <class M>
concept MeshCommunicator = Communicator<M> && requires(M& ranks, MeshAxis axis) {
  { ranks.place() } -> std::same_as<const MeshPlace&>;
  { ranks.sizes() } -> std::same_as<const mesh&>;
  requires Communicator<std::remove_reference_t<decltype(ranks.along(axis))>>;
};

}  // namespace shardwise
