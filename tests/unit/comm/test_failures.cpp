// What happens when ranks disagree, throw, leave, or wait for each other: everybody learns of it.

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/ranks_text.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::contains;
using testing::message_of;

namespace {

using Counts = std::vector<std::size_t>;

/// Every rank makes its call; each must get a collective_error in which all the words stand.
void check_mismatch(int ranks, const std::vector<std::string>& words,
                    const std::function<void(ThreadCommunicator&)>& call) {
  run_ranks(ranks, [&](ThreadCommunicator& c) {
    check_mentions(message_of<collective_error>([&] { call(c); }), words);
    mark_step(0);
    c.barrier();  // who catches it on every rank may go on
  });
}

void work(std::vector<float>& data, ThreadCommunicator& c) { c.all_reduce<float>(data, data); }

}  // namespace

TEST_CASE("calls that differ are told to every rank, with both calls") {
  for (const std::size_t n : {std::size_t{4}, std::size_t{4000}}) {
    const std::string count = std::to_string(n);
    for (int odd = 0; odd < 3; ++odd) {
      const std::string who = "rank " + std::to_string(odd) + " called ";
      const std::string usual = "called all_reduce(sum, float32, " + count + " elements)";
      check_mismatch(3, {usual, who + "barrier()"}, [&](ThreadCommunicator& c) {
        std::vector<float> data(n);
        c.rank() == odd ? c.barrier() : c.all_reduce<float>(data, data);
      });
      check_mismatch(3, {usual, who + "all_reduce(sum, float32, 1 element)"},
                     [&](ThreadCommunicator& c) {
                       std::vector<float> data(c.rank() == odd ? 1 : n);
                       c.all_reduce<float>(data, data);
                     });
      check_mismatch(3, {usual, who + "all_reduce(sum, int32, " + count + " elements)"},
                     [&](ThreadCommunicator& c) {
                       std::vector<float> data(n);
                       std::vector<std::int32_t> other(n);
                       c.rank() == odd ? c.all_reduce<std::int32_t>(other, other)
                                       : c.all_reduce<float>(data, data);
                     });
      check_mismatch(3, {usual, who + "all_reduce(min, float32, " + count + " elements)"},
                     [&](ThreadCommunicator& c) {
                       std::vector<float> data(n);
                       c.all_reduce<float>(data, data,
                                           c.rank() == odd ? Reduction::min : Reduction::sum);
                     });
      check_mismatch(3, {", root 1)", who + "broadcast(float32, " + count + " elements, root 2)"},
                     [&](ThreadCommunicator& c) {
                       std::vector<float> data(n);
                       c.broadcast(std::span(data), c.rank() == odd ? 2 : 1);
                     });
      check_mismatch(3, {"in counts 1 1 1)", "in counts 0 2 1)"}, [&](ThreadCommunicator& c) {
        const Counts counts = c.rank() == odd ? Counts{0, 2, 1} : Counts{1, 1, 1};
        std::vector<float> mine(counts[static_cast<std::size_t>(c.rank())]);
        std::vector<float> all(3);
        c.all_gather<float>(mine, all, counts);
      });
    }
  }
}

TEST_CASE("a call that is left out before an equal one is told, by the caller's mark") {
  const auto sum_of_step = [](ThreadCommunicator& c, std::uint64_t step) {
    mark_step(step);
    float x = 1;
    c.all_reduce<float>({&x, 1}, {&x, 1});
  };
  const std::string sum = "all_reduce(sum, float32, 1 element)";
  const std::string end = sum + "; all must make the same call";
  check_mismatch(3,
                 {"rank 1 is at step 5, the others at step 4: it left out all_reduce(sum, float32, "
                  "1 element)"},
                 [&](ThreadCommunicator& c) { sum_of_step(c, c.rank() == 1 ? 5 : 4); });
  check_mismatch(5, {"ranks 0, 3 are at step 2, the others at step 1: ranks 0, 3 left out " + end},
                 [&](ThreadCommunicator& c) { sum_of_step(c, c.rank() % 3 == 0 ? 2 : 1); });
  check_mismatch(4,
                 {"rank 3 is at no step, the others at step 2: rank 3 made once more " + sum +
                  ", or left out " + end},
                 [&](ThreadCommunicator& c) { sum_of_step(c, c.rank() == 3 ? 0 : 2); });
  check_mismatch(2,
                 {"rank 1 is at step 8, rank 0 at step 9: rank 0 left out " + sum +
                  ", or rank 1 made it once more;"},
                 [&](ThreadCommunicator& c) { sum_of_step(c, c.rank() == 0 ? 9 : 8); });
  check_mismatch(
      3, {"rank 0 is at step 1, rank 1 at step 2, rank 2 at step 3: ranks 1, 2 left out " + end},
      [&](ThreadCommunicator& c) { sum_of_step(c, static_cast<std::uint64_t>(c.rank()) + 1); });
  check_mismatch(3,
                 {"rank 2 is at step 2, the others at step 1: it left out barrier(); ranks 0, 1 "
                  "called barrier(); rank 2 called " +
                  end},
                 [&](ThreadCommunicator& c) {
                   mark_step(1);
                   c.rank() == 2 ? sum_of_step(c, 2) : c.barrier();
                 });
}

TEST_CASE("a message of another step or batch is told; its ranks may be at different layers") {
  for (const std::uint32_t step : {3U, 4U})
    for (const std::uint16_t batch : {std::uint16_t{0}, std::uint16_t{1}})
      run_ranks(2, [&](ThreadCommunicator& c) {
        const bool sends = c.rank() == 0;
        const detail::MarkedPhase phase(sends ? 3 : step, sends ? std::uint16_t{0} : batch,
                                        sends ? Phase::forward : Phase::backward, {});
        const detail::MarkedPart part(
            {sends ? 1U : 2U, [] { return std::string("Stage"); }, false});
        std::vector<float> data(2);
        if (sends) return c.send(std::span<const float>(data), 1);
        const auto receive = [&] { c.receive(std::span(data), 0); };
        if (step == 3 && batch == 0) return receive();
        const std::string what = message_of<collective_error>(receive);
        CAPTURE(what);
        check_mentions(what,
                       {"rank 0 called send(float32, 2 elements, to 1, tag 0) at step 3, 1: Stage",
                        "at step " + std::to_string(step)});
      });
}

TEST_CASE("a mark is of the phase and the part in which it is made, and ends with them") {
  const Mark none = detail::current_mark;
  CHECK(to_string(Call{}) == "barrier()");
  {
    const detail::MarkedPhase phase(12, 0, Phase::backward, {});
    CHECK(to_string(Call{}) == "barrier() at step 12, backward");
    const detail::MarkedPart block({0, [] { return std::string("Block"); }, true});
    {
      const detail::MarkedPart part({3, [] { return std::string("Product"); }, false});
      CHECK(to_string(Call{}) == "barrier() at step 12, 0/3: Product, backward");
      mark_step(7);
      const detail::MarkedPhase inner(1, 2, Phase::settle, {});
      CHECK(to_string(Call{}) == "barrier() at step 7, settle");
    }
    const detail::MarkedPart part({4, [] { return std::string("Sum"); }, false});
    CHECK(to_string(Call{}) == "barrier() at step 7, 0/4: Sum, backward");
  }
  CHECK(detail::CallRecord(Call{}) == detail::CallRecord(Call{.mark = none}));
  CHECK(to_string(Call{}) == "barrier()");
}

TEST_CASE("places that are deeper than a path are different places") {
  const auto name = [] { return std::string("Deep"); };
  const detail::MarkedPhase phase(1, 0, Phase::forward, {});
  const detail::MarkedPart a({0, name, true}), b({1, name, true}), c({0, name, true}),
      d({1, name, true}), e({0, name, true}), f({1, name, true});
  std::vector<detail::CallRecord> records;
  for (const std::size_t last : {std::size_t{0}, std::size_t{1}}) {
    const detail::MarkedPart deeper({last, name, false});
    records.emplace_back(Call{});
    CHECK(to_string(Call{}) == "barrier() at step 1, 0/1/0/1/0/1/...: Deep, forward");
  }
  CHECK_FALSE(records[0] == records[1]);
}

TEST_CASE("equal calls of parts that are deeper than a path are told by the parts' names") {
  check_mismatch(2,
                 {"rank 0 called barrier() at 0/1/0/1/0/1/...: Left, forward; rank 1 called "
                  "barrier() at 0/1/0/1/0/1/...: Right, forward; all must"},
                 [](ThreadCommunicator& ranks) {
                   using Part = detail::MarkedPart;
                   const auto name = [] { return std::string("Deep"); };
                   const detail::MarkedPhase phase(1, 0, Phase::forward, {});
                   const Part a({0, name, true}), b({1, name, true}), c({0, name, true}),
                       d({1, name, true}), e({0, name, true}), f({1, name, true});
                   const auto left = [] { return std::string("Left"); };
                   const auto right = [] { return std::string("Right"); };
                   const Part left_or_right(ranks.rank() == 0
                                                ? detail::NumberedPart{0, left, false}
                                                : detail::NumberedPart{1, right, false});
                   ranks.barrier();
                 });
}

TEST_CASE("in all_to_all, what one rank sends is what the other receives") {
  check_mismatch(3, {"rank 2 sends 5 elements to rank 0", "to receive 4"},
                 [](ThreadCommunicator& c) {
                   Counts sent{4, 4, 4};
                   if (c.rank() == 2) sent[0] = 5;
                   std::vector<float> in(c.rank() == 2 ? 13 : 12);
                   std::vector<float> out(12);
                   c.all_to_all<float>(in, sent, out, Counts{4, 4, 4});
                 });
}

TEST_CASE("in a group made by split, ranks are called by their numbers in the job") {
  check_mismatch(4, {"called barrier()", "called split()"}, [](ThreadCommunicator& world) {
    ThreadCommunicator pair = world.split(world.rank() / 2, -world.rank());
    const bool first = world.rank() % 2 == 0;
    const std::string what =
        message_of<collective_error>([&] { first ? pair.barrier() : void(pair.split(0, 0)); });
    check_mentions(what, {"rank " + std::to_string(world.rank() / 2 * 2) + " called barrier()",
                          "rank " + std::to_string(world.rank() / 2 * 2 + 1) + " called split()"});
    throw collective_error(what);
  });
}

TEST_CASE("a message that does not fit names both sides") {
  const std::string what = message_of<collective_error>([] {
    run_ranks(2, [](ThreadCommunicator& c) {
      std::vector<float> data(3);
      std::vector<double> wide(4);
      if (c.rank() == 0) c.send(std::span<const float>(data), 1, 5);
      if (c.rank() == 1) c.receive(std::span(wide), 0, 6);
    });
  });
  check_mentions(what, {"rank 0 called send(float32, 3 elements, to 1, tag 5)",
                        "rank 1 called receive(float64, 4 elements, from 0, tag 6)"});
}

TEST_CASE("a rank sees its own mistakes before anybody waits") {
  run_ranks(2, [](ThreadCommunicator& c) {
    std::vector<float> three(3), four(4), eight(8), seven(7), other_seven(7);
    const Counts counts{3, 4}, three_counts{3, 4, 1};
    const int me = c.rank(), peer = 1 - me;
    const std::size_t rank = static_cast<std::size_t>(me);
    std::vector<float> mine(counts[rank]);
    const auto front = [&](std::size_t n) { return std::span(eight).first(n); };
    const std::pair<std::function<void()>, std::string> mistakes[] = {
        {[&] { c.all_reduce<float>(three, four); },
         "all_reduce: the output has 4 elements and must have 3"},
        {[&] { c.all_reduce<float>(front(4), std::span(eight).subspan(2, 4)); },
         "all_reduce: input and output overlap; use two buffers, or work exactly in place"},
        {[&] { c.all_gather<float>(eight, seven, counts); },
         "all_gather: the input has 8 elements and must have "},
        {[&] { c.all_gather<float>(mine, eight, counts); },
         "all_gather: the output has 8 elements and must have 7"},
        {[&] { c.all_gather<float>(mine, eight, three_counts); },
         "all_gather: 3 counts are given for 2 ranks"},
        {[&] { c.reduce_scatter<float>(eight, mine, counts); },
         "reduce_scatter: the input has 8 elements and must have 7"},
        {[&] { c.reduce_scatter<float>(seven, eight, counts); },
         "reduce_scatter: the output has 8 elements and must have "},
        {[&] { c.reduce_scatter<float>(seven, mine, three_counts); },
         "reduce_scatter: 3 counts are given for 2 ranks"},
        {[&] { c.broadcast(std::span(three), 2); },
         "broadcast: root 2 is no rank of this group; its ranks are 0 to 1"},
        {[&] { c.broadcast(std::span(three), -1); }, "broadcast: root -1 is no rank of this group"},
        {[&] { c.gather<float>(mine, seven, counts, 2); },
         "gather: root 2 is no rank of this group"},
        {[&] { c.gather<float>(eight, seven, counts, peer); },
         "gather: the input has 8 elements and must have "},
        {[&] { c.gather<float>(mine, eight, counts, me); },
         "gather: the output has 8 elements and must have 7"},
        {[&] { c.scatter<float>(seven, mine, counts, -1); },
         "scatter: root -1 is no rank of this group"},
        {[&] { c.scatter<float>(seven, eight, counts, peer); },
         "scatter: the output has 8 elements and must have "},
        {[&] { c.scatter<float>(seven, eight, counts, me); },
         "scatter: the output has 8 elements and must have "},
        {[&] { c.scatter<float>(seven, mine, three_counts, peer); },
         "scatter: 3 counts are given for 2 ranks"},
        {[&] { c.scatter<float>(eight, mine, counts, me); },
         "scatter: the input has 8 elements and must have 7"},
        {[&] { c.scatter<float>(seven, std::span(seven).first(mine.size()), counts, me); },
         "scatter: input and output overlap; use two buffers"},
        {[&] { c.all_to_all<float>(seven, three_counts, other_seven, counts); },
         "all_to_all: 3 counts are given for 2 ranks"},
        {[&] { c.all_to_all<float>(seven, counts, other_seven, three_counts); },
         "all_to_all: 3 counts are given for 2 ranks"},
        {[&] { c.all_to_all<float>(eight, counts, seven, counts); },
         "all_to_all: the input has 8 elements and must have 7"},
        {[&] { c.all_to_all<float>(seven, counts, eight, counts); },
         "all_to_all: the output has 8 elements and must have 7"},
        {[&] { c.all_to_all<float>(seven, counts, seven, counts); },
         "all_to_all: input and output overlap; use two buffers"},
        {[&] { c.send(std::span<const float>(three), me); },
         " is the calling rank itself; messages go to other ranks"},
        {[&] { c.send(std::span<const float>(three), 2); }, " 2 is no rank of this group"},
        {[&] { c.receive(std::span(three), me); },
         " is the calling rank itself; messages go to other ranks"},
        {[&] { c.receive(std::span(three), 2); }, " 2 is no rank of this group"},
    };
    for (const auto& [mistake, sentence] : mistakes)
      check_mentions(message_of(mistake), {sentence});
    c.barrier();
  });
  SingleRank single;
  std::vector<float> three(3), four(4);
  CHECK_THROWS_AS(single.all_reduce<float>(three, four), shape_error);
  CHECK_THROWS_AS(single.all_gather<float>(three, three, Counts{4}), shape_error);
  CHECK_THROWS_AS(single.broadcast(std::span(three), 1), argument_error);
  CHECK_THROWS_AS(single.send(std::span<const float>(three), 0), argument_error);
}

TEST_CASE("run_ranks carries any exception out, with its rank") {
  const auto in_rank_1 = [](auto throws) {
    return [throws] {
      run_ranks(3, [&](ThreadCommunicator& c) {
        if (c.rank() == 1) throws();
        c.barrier();
      });
    };
  };
  CHECK(message_of<shape_error>(in_rank_1([] { throw shape_error("bad shape"); })) ==
        "rank 1: bad shape");
  const auto ours = in_rank_1([] { throw numeric_error("loss is NaN"); });
  CHECK(message_of<numeric_error>(ours) == "rank 1: loss is NaN");
  CHECK(message_of<rank_error>(in_rank_1([] { throw std::out_of_range("too far"); })) ==
        "rank 1: too far");
  CHECK(contains(message_of<rank_error>(in_rank_1([] { throw 42; })), "rank 1: "));
  try {
    in_rank_1([] { throw 42; })();
  } catch (const rank_error& e) {
    CHECK(e.rank() == 1);
    CHECK_THROWS_AS(std::rethrow_exception(e.cause()), int);
  }
  CHECK(contains(message_of<argument_error>([] { run_ranks(0, [](ThreadCommunicator&) {}); }),
                 "0 ranks"));
  CHECK_THROWS_AS(run_ranks(-3, [](ThreadCommunicator&) {}), argument_error);
}

TEST_CASE("docs/how-to/debug-a-hang.md shows what comes out of run_ranks") {
  const auto comes_out = [](int of_rank, auto body) {  // the other ranks keep theirs
    return message_of<error>([&] {
      run_ranks(3, [&](ThreadCommunicator& c) {
        try {
          body(c);
        } catch (const std::exception&) {
          if (c.rank() == of_rank) throw;
        }
      });
    });
  };
  CHECK(comes_out(1,
                  [](ThreadCommunicator& c) {
                    std::vector<float> data(4);
                    c.rank() == 0 ? c.barrier() : work(data, c);
                  }) ==
        "rank 1: ranks disagree in collective 1 of their group of 3: rank 0 called barrier(); "
        "ranks 1, 2 called all_reduce(sum, float32, 4 elements); all must make the same call");
  CHECK(comes_out(1, [](ThreadCommunicator& c) {
          if (c.rank() == 1) throw std::runtime_error("the disk is full");
          c.barrier();
        }) == "rank 1: the disk is full");
  CHECK(comes_out(0, [](ThreadCommunicator& c) {
          if (c.rank() != 1) c.barrier();
        }) == "rank 0: in barrier(), collective 1 of ranks 0, 1, 2: rank 1 has returned");
  CHECK(comes_out(1,
                  [](ThreadCommunicator& c) {
                    std::vector<float> data(4);
                    c.rank() == 0 ? c.receive(std::span(data), 1) : c.barrier();
                  }) ==
        "rank 1: in barrier(), collective 1 of ranks 0, 1, 2: no rank can go on, each waits for "
        "another: rank 0 waits in receive(float32, 4 elements, from 1, tag 0) of ranks 0, 1, 2; "
        "rank 1 waits in barrier(), collective 1 of ranks 0, 1, 2; rank 2 waits in barrier(), "
        "collective 1 of ranks 0, 1, 2");
}

TEST_CASE("peers are told which rank threw what, and in which collective they waited") {
  std::array<std::string, 3> told;
  const std::string cause = message_of<rank_error>([&] {
    run_ranks(3, [&](ThreadCommunicator& c) {
      c.barrier();
      if (c.rank() == 2) throw std::runtime_error("bad luck");
      std::vector<float> data(5);
      auto& mine = told[static_cast<std::size_t>(c.rank())];
      mine = message_of<peer_error>([&] { work(data, c); });
      CHECK(contains(message_of<peer_error>([&] { c.barrier(); }), "bad luck"));
      CHECK_THROWS_AS(c.send(std::span<const float>(data), 2), peer_error);
      CHECK_THROWS_AS(c.receive(std::span(data), 2), peer_error);
    });
  });
  CHECK(cause == "rank 2: bad luck");
  for (const int rank : {0, 1})
    CHECK(told[static_cast<std::size_t>(rank)] ==
          "in all_reduce(sum, float32, 5 elements), collective 2 of ranks 0, 1, 2: "
          "rank 2 threw: bad luck");
}

TEST_CASE("a rank that returns early concerns only those who wait for it") {
  std::atomic<int> finished = 0;
  const std::string what = message_of<peer_error>([&] {
    run_ranks(4, [&](ThreadCommunicator& world) {
      ThreadCommunicator pair = world.split(world.rank() / 2, 0);
      if (world.rank() == 3) return;
      if (world.rank() < 2)
        for (int i = 0; i < 100; ++i) pair.barrier();
      ++finished;
      if (world.rank() == 2) pair.barrier();
    });
  });
  CHECK(contains(what, "rank 2: in barrier(), collective 1 of ranks 2, 3: rank 3 has returned"));
  CHECK(finished >= 1);

  // What was sent before leaving still arrives; what was not never will.
  run_ranks(2, [](ThreadCommunicator& c) {
    std::vector<float> data{7};
    if (c.rank() == 0) return c.send(std::span<const float>(data), 1);
    data = {0};
    c.receive(std::span(data), 0);
    CHECK(data[0] == 7);
    CHECK(contains(message_of<peer_error>([&] { c.receive(std::span(data), 0); }),
                   "rank 0 has returned"));
  });
}

TEST_CASE("an exception inside a wait that nobody else joins reaches a nested run") {
  const std::string what = message_of<shape_error>([] {
    run_ranks(2, [](ThreadCommunicator& outer) {
      run_ranks(2, [&](ThreadCommunicator& inner) {
        if (outer.rank() == 1 && inner.rank() == 0) throw shape_error("inner");
        inner.barrier();
      });
      outer.barrier();
    });
  });
  CHECK(what == "rank 1: rank 0: inner");
}

TEST_CASE("ranks that wait for each other are told so") {
  const auto check_deadlock = [](int ranks, const std::vector<std::string>& words, auto body) {
    std::mutex mutex;
    std::vector<std::string> told;
    CHECK_THROWS_AS(run_ranks(ranks,
                              [&](ThreadCommunicator& c) {
                                try {
                                  body(c);
                                } catch (const collective_error& e) {
                                  std::scoped_lock lock(mutex);
                                  told.push_back(e.what());
                                  throw;
                                }
                              }),
                    collective_error);
    CHECK(told.size() == 2);
    for (const std::string& what : told) check_mentions(what, words);
  };
  check_deadlock(2, {"rank 0 waits in receive(", "rank 1 waits in all_reduce("},
                 [](ThreadCommunicator& c) {
                   std::vector<float> data(5);
                   c.rank() == 0 ? c.receive(std::span(data), 1) : work(data, c);
                 });
  check_deadlock(2, {"rank 0 waits in receive(", "rank 1 waits in receive("},
                 [](ThreadCommunicator& c) {
                   std::vector<float> data(5);
                   c.receive(std::span(data), 1 - c.rank());
                 });
  check_deadlock(2, {"collective 1 of ranks 0, 1", "collective 1 of ranks 1, 0"},
                 [](ThreadCommunicator& c) {
                   ThreadCommunicator first = c.split(0, 0);
                   ThreadCommunicator second = c.split(0, -c.rank());
                   (c.rank() == 0 ? first : second).barrier();
                   (c.rank() == 0 ? second : first).barrier();
                 });
  // The third rank leaves without having anything to do with it.
  check_deadlock(3, {"rank 0 waits in receive(", "rank 1 waits in receive(", "rank 2 has returned"},
                 [](ThreadCommunicator& c) {
                   std::vector<float> data(5);
                   if (c.rank() == 2)
                     std::this_thread::sleep_for(std::chrono::milliseconds(20));
                   else
                     c.receive(std::span(data), 1 - c.rank());
                 });
}

TEST_CASE("a rank that has returned is told with its last step") {
  const auto leave_early = [](ThreadCommunicator& c) {
    for (std::uint64_t step = 1; step <= (c.rank() == 1 ? 3U : 5U); ++step) {
      mark_step(step);
      c.barrier();
    }
  };
  check_mentions(
      message_of([&] { run_ranks(3, leave_early); }),
      {"in barrier() at step 4, collective 4 of ranks 0, 1, 2: rank 1 has returned after "
       "step 3"});
}

TEST_CASE("four and more ranks that follow each other are a range") {
  const auto text = [](const std::vector<int>& ranks) { return detail::ranks_text(ranks); };
  CHECK(text({1}) == "rank 1");
  CHECK(text({0, 1, 2}) == "ranks 0, 1, 2");
  CHECK(text({0, 1, 2, 3, 4, 6, 7}) == "ranks 0 to 4, 6, 7");
  CHECK(text({2, 4, 5, 6, 7}) == "ranks 2, 4 to 7");
}

TEST_CASE("ranks that sleep are woken") {
  run_ranks(3, [](ThreadCommunicator& c) {
    std::vector<float> data(3000, 1);
    for (int i = 0; i < 9; ++i) {
      if (i % 3 == c.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      work(data, c);
      if (i % 3 == c.rank()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        for (int to = 0; to < 3; ++to)
          if (to != c.rank()) c.send(std::span<const float>(data), to);
      } else {
        c.receive(std::span(data), i % 3);
      }
    }
    CHECK(data[2999] == 19683);
  });
}

// Sanitizers need more address space than this test leaves. g++ and clang each say it their own
// way.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#elif defined(__has_feature)
constexpr bool sanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
constexpr bool sanitized = false;
#endif

TEST_CASE("a thread that cannot be started is an error, and the others end" *
          doctest::skip(sanitized)) {
  const pid_t child = fork();
  if (child == 0) {  // so that the limit on address space is not ours
    const rlimit limit{std::size_t{1} << 30, std::size_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    std::atomic<int> started = 0;
    try {  // their stacks are more than the limit, their mailboxes far less
      run_ranks(300, [&](ThreadCommunicator&) { ++started; });
    } catch (const rank_error& e) {
      if (contains(e.what(), "could not start its thread") && started == 0) _exit(0);
    } catch (...) {
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
