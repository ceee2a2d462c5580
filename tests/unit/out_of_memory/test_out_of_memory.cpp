// Each allocation of a run on thread ranks fails in turn: the run ends with an error of this
// library, or without one if the rank caught it, and never with a bare std::bad_alloc. So it is
// with a tensor.

#include <doctest/doctest.h>

#include <cstddef>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/key_value_cache.hpp"
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

struct End {
  std::string what;  ///< leaves the program
  bool had_memory;   ///< whether no allocation failed
};

/// How `program` ends if its allocation number `nth` fails, once or for good.
End end_of(void (*program)(), long nth, bool for_good) {
  const auto end = [](const char* what) {
    const bool had_memory = testing::allocations_left.exchange(-1) > 0;
    return End{what, had_memory};
  };
  testing::memory_stays_away = for_good;
  testing::allocations_left = nth;
  try {
    program();
  } catch (const memory_error&) {
    return end("memory_error");
  } catch (const rank_error&) {
    return end("rank_error");
  } catch (const std::exception& other) {
    return end(other.what());
  }
  return end("nothing");
}

void check_each_allocation(void (*program)(), bool for_good, const char* without_failure) {
  long memory_errors = 0;
  for (long nth = 0; nth < 1000; ++nth) {
    const End end = end_of(program, nth, for_good);
    CAPTURE(for_good);
    CAPTURE(nth);
    CAPTURE(end.what);
    if (end.had_memory) {
      CHECK(end.what == without_failure);
      CHECK(memory_errors > 15);
      return;
    }
    CHECK((end.what == "memory_error" || end.what == "rank_error" || end.what == "nothing"));
    memory_errors += end.what == "memory_error" ? 1 : 0;
  }
  FAIL("a program this short makes 1000 allocations");
}

}  // namespace

TEST_CASE("whichever allocation fails, once or for good, the error is one of ours") {
  for (const bool for_good : {false, true}) {
    check_each_allocation(all_kinds_of_calls, for_good, "nothing");
    check_each_allocation(a_quarrel_and_an_exception, for_good, "rank_error");
  }
}

namespace {

/// What f() says if its first allocation fails.
template <class F>
std::string without_memory(F f) {
  std::string text;
  testing::memory_stays_away = false;
  testing::allocations_left = 0;
  try {
    f();
  } catch (const memory_error& e) {
    text = e.what();
  }
  testing::allocations_left = -1;
  return text;
}

}  // namespace

TEST_CASE("a tensor or a cache for which there is no memory says how large it is") {
  CHECK(
      without_memory([] {
        Tensor<float, Invariant>({{Axis::batch, 1000}, {Axis::feature, 3}});
      }) ==
      "no memory for 12000 bytes of a tensor [batch 1000, feature 3]. Use more ranks or a smaller "
      "batch");
  CHECK(without_memory([] { KeyValueCache({.sequences = 8, .tokens = 4}); }) ==
        "KeyValueCache: no memory to list 8 sequences");
}

TEST_CASE("an error keeps its message where there is no memory for a place") {
  shape_error wrong("10 is not 12");
  testing::memory_stays_away = true;
  testing::allocations_left = 0;
  wrong.add_place("a place of more letters than a short text has");
  testing::allocations_left = -1;
  CHECK(std::string(wrong.what()) == "10 is not 12");
}
