#pragma once
// A communicator whose ranks form a mesh, as algorithms see it.

#include <concepts>
#include <type_traits>
#include <utility>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/mesh.hpp"

namespace shardwise {

namespace detail {

/// A communicator whose ranks form a mesh: MeshRanks of any communicator.
template <class M>
concept MeshCommunicator = Communicator<M> && requires(M& ranks, MeshAxis axis) {
  { ranks.place() } -> std::same_as<const MeshPlace&>;
  { ranks.sizes() } -> std::same_as<const mesh&>;
  requires Communicator<std::remove_reference_t<decltype(ranks.along(axis))>>;
};

/// The ranks that share the layers of a model: those along `tensor` of a mesh, or all ranks.
template <Communicator C>
auto& ranks_of_layers(C& ranks) {
  if constexpr (MeshCommunicator<C>) {
    return ranks.along(MeshAxis::tensor);
  } else {
    return ranks;
  }
}
template <Communicator C>
using ranks_of_layers_t = std::remove_reference_t<decltype(ranks_of_layers(std::declval<C&>()))>;

}  // namespace detail

}  // namespace shardwise
