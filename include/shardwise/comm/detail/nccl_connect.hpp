#pragma once
// How a group of NCCL is made: from ranks that meet in a rendezvous, or from a communicator of the
// caller.

#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/comm/detail/peer_info.hpp"
#include "shardwise/comm/detail/rank_failure.hpp"
#include "shardwise/comm/nccl_options.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

/// A rank that cannot take part tells the others before it throws.
template <Rendezvous R>
std::unique_ptr<NcclGroup> connect(R& place, NcclOptions options) {
  std::exception_ptr failure;
  const PeerInfo mine = make_peer_info(place.rank(), options.device, failure);
  std::vector<PeerInfo> peers;
  for (const RendezvousPayload& payload : place.meet(mine.encode()))
    peers.push_back(PeerInfo::decode(payload));
  if (failure) {
    try {
      std::rethrow_exception(failure);
    } catch (...) {
      rethrow_with_rank(place.rank());
    }
  }
  check_peers(peers);
  ncclUniqueId id;
  std::memcpy(&id, peers[0].id.data(), sizeof id);
  auto group = std::make_unique<NcclGroup>(
      NcclGroup::Settings{options.device, options.stream, options.timeout, true});
  group->connect(place.rank(), place.size(), id);
  return group;
}

inline std::unique_ptr<NcclGroup> adopt(ncclComm_t comm, NcclGroup::Settings settings) {
  if (comm == nullptr)
    throw argument_error("NcclCommunicator: the ncclComm_t is null; give one that was made");
  check(ncclCommCuDevice(comm, &settings.device), "ncclCommCuDevice");
  auto group = std::make_unique<NcclGroup>(settings);
  group->adopt(comm);
  return group;
}

}  // namespace shardwise::detail::nccl
