// The decision between "all have arrived" and "given up": it is the same for all ranks.

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "shardwise/comm/detail/thread_world.hpp"

using namespace shardwise::detail;

namespace {

constexpr std::uint64_t step = Progress::stride;

Wait wait_for(std::vector<Progress>& progress, std::uint64_t target) {
  return {progress, target, nullptr, 1, {}, {}};
}

}  // namespace

TEST_CASE("who gives up stops one that has not arrived") {
  std::vector<Progress> ranks(3);
  CHECK(ranks[0].advance_from(0));
  CHECK(ranks[2].advance_from(0));
  const Wait wait = wait_for(ranks, step);
  CHECK(wait.give_up());
  CHECK(wait.give_up());
  CHECK_FALSE(ranks[1].advance_from(0));
  CHECK_FALSE(wait.done());
}

TEST_CASE("when all have arrived no rank can give up") {
  std::vector<Progress> ranks(2);
  for (Progress& rank : ranks) CHECK(rank.advance_from(0));
  CHECK_FALSE(wait_for(ranks, step).give_up());
  CHECK(wait_for(ranks, step).done());
}

TEST_CASE("giving up a step leaves the one before complete") {
  std::vector<Progress> ranks(2);
  for (Progress& rank : ranks) CHECK(rank.advance_from(0));
  CHECK(ranks[0].advance_from(step));
  CHECK(wait_for(ranks, 2 * step).give_up());
  CHECK(wait_for(ranks, step).done());
  CHECK_FALSE(wait_for(ranks, step).give_up());
}

TEST_CASE("an arrival and a giving up at the same time: exactly one succeeds") {
  for (int i = 0; i < 2000; ++i) {
    std::vector<Progress> ranks(2);
    ranks[0].advance_from(0);
    std::atomic<int> ready = 0;
    const auto together = [&] {
      for (++ready; ready < 2;) std::this_thread::yield();
    };
    bool arrived = false;
    std::thread other([&] {
      together();
      arrived = ranks[1].advance_from(0);
    });
    together();
    const bool gave_up = wait_for(ranks, step).give_up();
    other.join();
    if (arrived == gave_up) FAIL("both, or neither");
  }
}
