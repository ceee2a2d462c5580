#pragma once
// How a group of NCCL begins: ranks that meet somewhere, or a communicator that the caller has
// made.

#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "shardwise/comm/detail/device_card.hpp"
#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/comm/detail/rank_failure.hpp"
#include "shardwise/comm/nccl_options.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

/// A rank that cannot take part says so to the others before it throws.
template <Rendezvous R>
std::unique_ptr<Group> connected(R& place, NcclOptions options) {
  std::exception_ptr trouble;
  const DeviceCard mine = make_card(place.rank(), options.device, trouble);
  std::vector<DeviceCard> cards;
  for (const Card& card : place.meet(mine.encode())) cards.push_back(DeviceCard::decode(card));
  if (trouble) {
    try {
      std::rethrow_exception(trouble);
    } catch (...) {
      rethrow_with_rank(place.rank());
    }
  }
  check_cards(cards);
  ncclUniqueId id;
  std::memcpy(&id, cards[0].id.data(), sizeof id);
  auto group =
      std::make_unique<Group>(Group::Terms{options.device, options.stream, options.timeout, true});
  group->connect(place.rank(), place.size(), id);
  return group;
}

inline std::unique_ptr<Group> adopted(ncclComm_t comm, Group::Terms terms) {
  if (comm == nullptr)
    throw argument_error("NcclCommunicator: the ncclComm_t is null; give one that was made");
  check(ncclCommCuDevice(comm, &terms.device), "ncclCommCuDevice");
  auto group = std::make_unique<Group>(terms);
  group->adopt(comm);
  return group;
}

}  // namespace shardwise::detail::nccl
