// Ranks that are kept, and called by threads that are no ranks. No case looks at a clock.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "shardwise/comm/rank_group.hpp"
#include "shardwise/core/error.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using testing::check_mentions;
using testing::message_of;

namespace {

/// What a rank keeps: it stays where it is made, as a Model does.
struct Account {
  explicit Account(ThreadCommunicator& c) : ranks(c), made_on(std::this_thread::get_id()) {}
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;
  ~Account() = default;

  int sum(int mine) {
    std::array<int, 1> all{mine};
    ranks.all_reduce<int>(all, all);
    total += all[0];
    return all[0];
  }

  ThreadCommunicator& ranks;
  std::thread::id made_on;
  int total = 0;
};

Account make(ThreadCommunicator& c) { return Account(c); }

}  // namespace

TEST_CASE("a call runs on every rank, on the thread that made its state, which stays") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    CAPTURE(ranks);
    RankGroup group(ranks, make);
    static_assert(std::is_same_v<decltype(group), RankGroup<Account>>);
    CHECK(group.size() == ranks);
    std::atomic<int> alike = 0;
    for (int i = 1; i <= 3; ++i) {
      const int sum = group.call([&](Account& mine) {
        alike += mine.made_on == std::this_thread::get_id() ? 1 : 0;
        return mine.sum(i * (mine.ranks.rank() + 1));
      });
      CHECK(sum == i * ranks * (ranks + 1) / 2);
    }
    CHECK(alike == 3 * ranks);
    CHECK(group.call([](Account& mine) { return mine.total; }) == 6 * ranks * (ranks + 1) / 2);
    CHECK(group.call([](Account& mine) { return 10 + mine.ranks.rank(); }) == 10);
  }
}

TEST_CASE("threads that call take turns") {
  RankGroup group(3, make);
  std::atomic<int> right = 0;
  std::vector<std::thread> callers;
  for (int t = 1; t <= 5; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        right += group.call([&](Account& mine) { return mine.sum(t); }) == 3 * t ? 1 : 0;
    });
  }
  for (std::thread& one : callers) one.join();
  CHECK(right == 250);
  CHECK(group.call([](Account& mine) { return mine.total; }) == 50 * 3 * (1 + 2 + 3 + 4 + 5));
}

TEST_CASE("ranks without a call do not wait for each other, so no time-out ends them") {
  RankGroup group(2, make, {.timeout = 1ms});
  std::this_thread::sleep_for(50ms);
  CHECK(group.call([](Account& mine) { return mine.ranks.size(); }) == 2);
}

TEST_CASE("an error of one rank comes to the caller with its rank, and ends the group") {
  for (int odd = 0; odd < 3; ++odd) {
    CAPTURE(odd);
    RankGroup group(3, make);
    const std::string rank = "rank " + std::to_string(odd) + ": ";
    const auto fails = [&] {
      group.call([&](Account& mine) {
        if (mine.ranks.rank() == odd) throw shape_error("no such shape");
        mine.sum(1);  // the others wait for it
      });
    };
    check_mentions(message_of<shape_error>(fails), {rank + "no such shape"});
    check_mentions(
        message_of<peer_error>([&] { group.call([](Account&) {}); }),
        {"RankGroup: its ranks were out of step", rank + "no such shape", "a new group"});
  }
}

TEST_CASE("one rank that throws where no other waits ends the group, too") {
  RankGroup group(3, make);
  CHECK_THROWS_AS(group.call([](Account& mine) {
    mine.sum(1);
    if (mine.ranks.rank() == 2) throw std::runtime_error("only here");
  }),
                  rank_error);
  CHECK_THROWS_AS(group.call([](Account&) {}), peer_error);
}

TEST_CASE("an error that every rank has leaves the group as it was") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    RankGroup group(ranks, make);
    for (int i = 0; i < 20; ++i) {
      CHECK_THROWS_AS(group.call([&](Account& mine) {
        mine.sum(1);
        throw shape_error("refused");
      }),
                      shape_error);
      CHECK(group.call([](Account& mine) { return mine.sum(2); }) == 2 * ranks);
    }
    CHECK(group.call([](Account& mine) { return mine.total; }) == 20 * 3 * ranks);
  }
}

TEST_CASE("calls that differ are told to every rank, and the group goes on") {
  RankGroup group(3, make);
  check_mentions(message_of<collective_error>([&] {
                   group.call([](Account& mine) {
                     mine.ranks.rank() == 1 ? mine.ranks.barrier() : void(mine.sum(1));
                   });
                 }),
                 {"rank 1 called barrier()"});
  CHECK(group.call([](Account& mine) { return mine.sum(2); }) == 6);
}

TEST_CASE("a message that nobody may have received ends the group with the error of all") {
  RankGroup group(2, make);
  CHECK_THROWS_AS(group.call([](Account& mine) {
    const std::array<int, 1> number{7};
    if (mine.ranks.rank() == 0) mine.ranks.send<int>(number, 1);
    throw shape_error("refused");
  }),
                  shape_error);
  CHECK_THROWS_AS(group.call([](Account&) {}), peer_error);
}

TEST_CASE("a rank that returns early is told to those that wait for it") {
  RankGroup group(3, make);
  check_mentions(message_of<peer_error>([&] {
                   group.call([](Account& mine) {
                     if (mine.ranks.rank() != 1) mine.sum(1);
                   });
                 }),
                 {"rank 1 has returned"});
  CHECK_THROWS_AS(group.call([](Account&) {}), peer_error);
}

TEST_CASE("ranks that wait for each other without end are told") {
  RankGroup group(2, make);
  check_mentions(message_of<collective_error>([&] {
                   group.call([](Account& mine) {
                     std::array<int, 1> number{};
                     mine.ranks.receive<int>(number, 1 - mine.ranks.rank());
                   });
                 }),
                 {"no rank can go on"});
  CHECK_THROWS_AS(group.call([](Account&) {}), peer_error);
}

TEST_CASE("a rank that calls its own group is refused, and may call another one") {
  RankGroup group(2, make);
  RankGroup other(2, make);
  CHECK_THROWS_AS(group.call([&](Account&) { group.call([](Account&) {}); }), argument_error);
  CHECK(group.call([&](Account& mine) {
    return mine.sum(other.call([](Account& theirs) { return theirs.sum(1); }));
  }) == 4);
}

TEST_CASE("a group whose states cannot be made leaves nothing") {
  const auto bad = [](ThreadCommunicator& c) {
    if (c.rank() == 1) throw data_error("no such file");
    c.barrier();
    return c.rank();
  };
  check_mentions(message_of<data_error>([&] { RankGroup(3, bad); }), {"rank 1: no such file"});
  CHECK_THROWS_AS(RankGroup(0, make), argument_error);
}

TEST_CASE(
    "a rank that passes over the error of a call, or throws another one for it, ends the group") {
  for (const bool throws : {false, true}) {
    CAPTURE(throws);
    RankGroup group(2, [](ThreadCommunicator& ranks) { return &ranks; });
    const auto fails = [&] {
      group.call([&](ThreadCommunicator* ranks) {
        if (ranks->rank() == 0) throw std::runtime_error("no input");
        try {
          ranks->barrier();
        } catch (const peer_error&) {
          if (throws) throw std::runtime_error("no peer");
        }
      });
    };
    CHECK_THROWS(fails());
    CHECK(message_of<peer_error>([&] {
            group.call([](ThreadCommunicator*) {});
          }).find("out of step") != std::string::npos);
  }
}

TEST_CASE("a mark that a call has left is not one of the next call") {
  RankGroup group(2, [](ThreadCommunicator& ranks) { return &ranks; });
  CHECK_THROWS(group.call([](ThreadCommunicator* ranks) {
    if (ranks->rank() == 0) mark_step(5);
    throw std::runtime_error("all refuse it");
  }));
  group.call([](ThreadCommunicator* ranks) { ranks->barrier(); });
}
