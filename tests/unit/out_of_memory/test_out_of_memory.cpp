// Each allocation of a run on thread ranks fails in turn: the run ends with an error of this
// library, or without one if the rank caught it, and never with a bare std::bad_alloc.

#include <doctest/doctest.h>

#include <cstddef>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "support/count_allocations.hpp"

using namespace shardwise;

namespace {

constexpr int ranks = 3;

void all_kinds_of_calls() {
  run_ranks(ranks, [](ThreadCommunicator& c) {
    std::vector<float> data(600, 1), all(ranks * 600);
    c.all_reduce<float>(data, data);
    ThreadCommunicator group = c.split(c.rank() % 2, 0);
    group.all_reduce<float>(data, data);
    c.all_gather<float>(data, all, std::vector<std::size_t>(ranks, 600));
    c.send(std::span<const float>(data), (c.rank() + 1) % ranks);
    c.receive(std::span(data), (c.rank() + ranks - 1) % ranks);
    c.barrier();
  });
}

void a_quarrel_and_an_exception() {
  run_ranks(ranks, [](ThreadCommunicator& c) {
    std::vector<float> data(c.rank() == 1 ? 601 : 600, 1);
    try {
      c.all_reduce<float>(data, data);
    } catch (const collective_error&) {
    }
    c.barrier();
    if (c.rank() == 2) throw std::runtime_error("planted by the test, with a text of some length");
    c.barrier();
  });
}

/// What leaves `program` if its allocation number `nth` fails.
std::string what_leaves(void (*program)(), long nth, bool lasting) {
  const auto end = [](const char* kind) {
    testing::allocations_left = -1;
    return std::string(kind);
  };
  testing::memory_stays_away = lasting;
  testing::allocations_left = nth;
  try {
    program();
  } catch (const memory_error&) {
    return end("memory_error");
  } catch (const rank_error&) {
    return end("rank_error");
  } catch (const std::exception& other) {
    testing::allocations_left = -1;
    return other.what();
  }
  return end("nothing");
}

}  // namespace

TEST_CASE("whichever allocation fails, once or for good, the error is one of ours") {
  for (void (*const program)() : {all_kinds_of_calls, a_quarrel_and_an_exception})
    for (const bool lasting : {false, true}) {
      long memory_errors = 0;
      for (long nth = 0; nth < 120; ++nth) {  // no program makes so many
        const std::string what = what_leaves(program, nth, lasting);
        CAPTURE(lasting);
        CAPTURE(nth);
        CAPTURE(what);
        CHECK((what == "memory_error" || what == "rank_error" || what == "nothing"));
        memory_errors += what == "memory_error" ? 1 : 0;
      }
      CHECK(memory_errors > 15);
      CHECK(what_leaves(program, 119, lasting) ==
            (program == all_kinds_of_calls ? "nothing" : "rank_error"));
    }
}
