// What ranks with devices show each other, and what must hold of it.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/comm/detail/device_card.hpp"

using namespace shardwise;
using detail::DeviceCard;

namespace {

std::vector<DeviceCard> four_ranks_on_two_machines() {
  std::vector<DeviceCard> cards(4);
  for (std::size_t r = 0; r < cards.size(); ++r) {
    cards[r].machine = 0xfedcba9876543210U + r / 2;
    cards[r].version = 22809;
    cards[r].device = r % 2 == 0 ? "0000:3b:00.0" : "0000:5e:00.0";
  }
  return cards;
}

}  // namespace

TEST_CASE("device card: what goes on it comes off it, cut to its room") {
  DeviceCard card = four_ranks_on_two_machines()[1];
  for (std::size_t i = 0; i < card.id.size(); ++i) card.id[i] = static_cast<std::byte>(255 - i);
  card.problem = std::string(100, 'p');
  const DeviceCard same = DeviceCard::decode(card.encode());
  CHECK(same.id == card.id);
  CHECK(same.machine == card.machine);
  CHECK(same.version == card.version);
  CHECK(same.device == card.device);
  CHECK(same.problem == std::string(84, 'p'));
}

TEST_CASE("device card: equal bus numbers on two machines are two devices") {
  CHECK_NOTHROW(detail::check_cards(four_ranks_on_two_machines()));
}

TEST_CASE("device card: two ranks on one GPU are named") {
  std::vector<DeviceCard> cards = four_ranks_on_two_machines();
  cards[3].device = cards[2].device;
  CHECK_THROWS_WITH_AS(
      detail::check_cards(cards),
      "NCCL: ranks 2 and 3 are both on the GPU 0000:3b:00.0 of one machine, which NCCL refuses. "
      "Run no more ranks than GPUs and give each its own (LOCAL_RANK), or share one GPU among "
      "thread ranks",
      argument_error);
}

TEST_CASE("device card: a rank's problem and another version reach all ranks") {
  std::vector<DeviceCard> cards = four_ranks_on_two_machines();
  cards[1].version = 21800;
  CHECK_THROWS_WITH_AS(detail::check_cards(cards),
                       "NCCL: rank 0 has version code 22809 and rank 1 has 21800; give all ranks "
                       "the same library",
                       backend_error);
  cards[3].problem = "no device";
  CHECK_THROWS_WITH_AS(detail::check_cards(cards), "rank 3 cannot take part: no device",
                       peer_error);
}

TEST_CASE("device card: a machine has one number") {
  CHECK(detail::this_machine() == detail::this_machine());
  CHECK(detail::this_machine() != 0);
}
