// What ranks with devices show each other, and what must hold of it.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/comm/detail/peer_info.hpp"

using namespace shardwise;
using detail::PeerInfo;

namespace {

std::vector<PeerInfo> four_ranks_on_two_machines() {
  std::vector<PeerInfo> peers(4);
  for (std::size_t r = 0; r < peers.size(); ++r) {
    peers[r].machine = 0xfedcba9876543210U + r / 2;
    peers[r].version = 22809;
    peers[r].device = r % 2 == 0 ? "0000:3b:00.0" : "0000:5e:00.0";
  }
  return peers;
}

}  // namespace

TEST_CASE("peer info: what goes on it comes off it, cut to its room") {
  PeerInfo info = four_ranks_on_two_machines()[1];
  for (std::size_t i = 0; i < info.id.size(); ++i) info.id[i] = static_cast<std::byte>(255 - i);
  info.problem = std::string(100, 'p');
  const PeerInfo same = PeerInfo::decode(info.encode());
  CHECK(same.id == info.id);
  CHECK(same.machine == info.machine);
  CHECK(same.version == info.version);
  CHECK(same.device == info.device);
  CHECK(same.problem == std::string(84, 'p'));
}

TEST_CASE("peer info: equal bus numbers on two machines are two devices") {
  CHECK_NOTHROW(detail::check_peers(four_ranks_on_two_machines()));
}

TEST_CASE("peer info: two ranks on one GPU are named") {
  std::vector<PeerInfo> peers = four_ranks_on_two_machines();
  peers[3].device = peers[2].device;
  CHECK_THROWS_WITH_AS(
      detail::check_peers(peers),
      "NCCL: ranks 2 and 3 are both on the GPU 0000:3b:00.0 of one machine, which NCCL refuses. "
      "Run no more ranks than GPUs and give each its own (LOCAL_RANK), or share one GPU among "
      "thread ranks",
      argument_error);
}

TEST_CASE("peer info: a rank's problem and another version reach all ranks") {
  std::vector<PeerInfo> peers = four_ranks_on_two_machines();
  peers[1].version = 21800;
  CHECK_THROWS_WITH_AS(detail::check_peers(peers),
                       "NCCL: rank 0 has version code 22809 and rank 1 has 21800; give all ranks "
                       "the same library",
                       backend_error);
  peers[3].problem = "no device";
  CHECK_THROWS_WITH_AS(detail::check_peers(peers), "rank 3 cannot take part: no device",
                       peer_error);
}

TEST_CASE("peer info: a machine has one number") {
  CHECK(detail::this_machine() == detail::this_machine());
  CHECK(detail::this_machine() != 0);
}
