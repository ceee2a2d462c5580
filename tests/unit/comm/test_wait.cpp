// The decision between "all have arrived" and "given up", which is the same for all ranks, and when
// a rank has waited for too long.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "shardwise/comm/detail/patience.hpp"
#include "shardwise/comm/detail/rank_progress.hpp"
#include "shardwise/comm/detail/thread_world.hpp"
#include "shardwise/comm/timeout.hpp"

using namespace shardwise::detail;

namespace {

constexpr std::uint64_t step = Progress::stride;

Wait wait_for(std::vector<Progress>& progress, std::uint64_t target) {
  static constexpr int ranks[] = {0, 1, 2};
  return {progress.data(), target, {nullptr, 1, {}}, {ranks, progress.size()}};
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

TEST_CASE("patience ends after its time, and says so once before") {
  using namespace std::chrono_literals;
  using Event = Patience::Event;
  const Patience::Clock::time_point start{};
  Patience patience(1s, start);
  CHECK(patience.poll(start + 99ms) == Event::none);
  CHECK(patience.poll(start + 100ms) == Event::warning);
  for (auto time = 200ms; time < 1000ms; time += 100ms)
    CHECK(patience.poll(start + time) == Event::none);
  CHECK(patience.poll(start + 1000ms) == Event::timeout);
  CHECK(patience.poll(start + 1001ms) == Event::timeout);

  Patience longest(Patience::Duration::max(), start);
  CHECK(longest.poll(start + 100ms) == Event::none);
  CHECK(Patience::warning_after(10min) == 1min);
  CHECK(Patience::warning_after(1h) == 1min);
  Patience without_end(0s, start);
  for (int poll = 1; poll <= 100000; ++poll)  // almost three hours
    CHECK(without_end.poll(start + poll * 100ms) == (poll == 600 ? Event::warning : Event::none));
}

TEST_CASE("who waits patiently has no end and no warning, and only that long") {
  using namespace std::chrono_literals;
  const Patience::Clock::time_point start{};
  Patience patience(1s, start);
  const int result = shardwise::patiently([&] {
    shardwise::patiently([] {});
    for (int poll = 1; poll <= 1000; ++poll)
      CHECK(patience.poll(start + poll * 100ms) == Patience::Event::none);
    return 5;
  });
  CHECK(result == 5);
  CHECK_THROWS_AS(shardwise::patiently([] { throw 1; }), int);
  for (int poll = 1001; poll < 1010; ++poll) patience.poll(start + poll * 100ms);
  CHECK(patience.poll(start + 1010 * 100ms) == Patience::Event::timeout);
}

TEST_CASE("a program that is stopped for an hour and continued has waited a moment only") {
  using namespace std::chrono_literals;
  const Patience::Clock::time_point start{};
  Patience patience(2s, start);
  for (int poll = 1; poll < 20; ++poll)
    CHECK(patience.poll(start + poll * 1h) != Patience::Event::timeout);
  CHECK(patience.poll(start + 20h) == Patience::Event::timeout);
}
