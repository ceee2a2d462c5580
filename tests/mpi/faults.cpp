// Ranks that disagree: with checks at the level `communicating`, which is the default, every rank
// of the group gets an error that names what both called, whoever of them is wrong, and the group
// can go on. Below that level most of these cases give wrong numbers, memory that is overwritten,
// or a wait until the time-out.

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "support/mpi_ranks.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::contains;
using testing::message_of;
using testing::World;

namespace {

using Counts = std::vector<std::size_t>;

/// With the checks that one has who says nothing about them.
MpiCommunicator checked_ranks() { return MpiCommunicator(MPI_COMM_WORLD); }

/// The last rank calls `wrong`, all others call `right`; the message has both, with who called
/// them.
template <class Right, class Wrong>
void check_mismatch(const std::string& right_call, Right right, const std::string& wrong_call,
                    Wrong wrong) {
  MpiCommunicator ranks = checked_ranks();
  if (World::get().lacks(2)) return;
  const int last = ranks.size() - 1;
  for (int again = 0; again < 2; ++again) {
    const std::string message = message_of<collective_error>([&] {
      if (ranks.rank() == last)
        wrong(ranks);
      else
        right(ranks);
    });
    check_mentions(message, {right_call, "rank " + std::to_string(last) + " called " + wrong_call,
                             "all must make the same call"});
    ranks.barrier();  // the group is as it was
  }
}

std::vector<float> some(8);
std::vector<double> doubles(8);
std::vector<float> many(5000);
std::vector<float> more(6000);

const auto sum_floats = [](MpiCommunicator& c) { c.all_reduce<float>(some, some); };
const std::string sum_of_floats = "all_reduce(sum, float32, 8 elements)";

}  // namespace

TEST_CASE("another type") {
  check_mismatch(sum_of_floats, sum_floats, "all_reduce(sum, float64, 8 elements)",
                 [](MpiCommunicator& c) { c.all_reduce<double>(doubles, doubles); });
}

TEST_CASE("another operation") {
  check_mismatch(sum_of_floats, sum_floats, "all_reduce(max, float32, 8 elements)",
                 [](MpiCommunicator& c) { c.all_reduce<float>(some, some, Reduction::max); });
}

TEST_CASE("another root") {
  check_mismatch(
      "broadcast(float32, 8 elements, root 0)",
      [](MpiCommunicator& c) { c.broadcast(std::span(some), 0); },
      "broadcast(float32, 8 elements, root 1)",
      [](MpiCommunicator& c) { c.broadcast(std::span(some), 1); });
}

TEST_CASE("a smaller count") {
  check_mismatch(sum_of_floats, sum_floats, "all_reduce(sum, float32, 6 elements)",
                 [](MpiCommunicator& c) {
                   const std::span<float> part = std::span(some).first(6);
                   c.all_reduce<float>(part, part);
                 });
}

TEST_CASE("a larger count, of data that goes in several messages") {
  check_mismatch(
      "all_reduce(sum, float32, 5000 elements)",
      [](MpiCommunicator& c) { c.all_reduce<float>(many, many); },
      "all_reduce(sum, float32, 6000 elements)",
      [](MpiCommunicator& c) { c.all_reduce<float>(more, more); });
}

TEST_CASE("another collective") {
  check_mismatch(sum_of_floats, sum_floats, "barrier()", [](MpiCommunicator& c) { c.barrier(); });
}

TEST_CASE("another call than a sum that is under way, which is told where it ends") {
  const auto begin = [](MpiCommunicator& c) { c.begin_all_reduce<float>(some, some).finish(); };
  check_mismatch(sum_of_floats, begin, "begin_all_reduce(sum, float32, 6 elements)",
                 [](MpiCommunicator& c) {
                   const std::span<float> part = std::span(some).first(6);
                   c.begin_all_reduce<float>(part, part).finish();
                 });
  check_mismatch(sum_of_floats, begin, "barrier()", [](MpiCommunicator& c) { c.barrier(); });
  check_mismatch("begin_" + sum_of_floats, begin, sum_of_floats, sum_floats);
  const auto scatter = [](MpiCommunicator& c, std::size_t first) {
    Counts counts(static_cast<std::size_t>(c.size()));
    counts[0] = first;
    counts[1] = 8 - first;
    std::vector<float> block(counts[static_cast<std::size_t>(c.rank())]);
    auto sums = c.begin_reduce_scatter<float>(some, block, counts);
    counts.assign(counts.size(), 9);  // what is told are the counts as they were
    sums.finish();
  };
  check_mismatch(
      "begin_reduce_scatter(sum, float32, 8 elements in counts 1 7",
      [&](MpiCommunicator& c) { scatter(c, 1); },
      "begin_reduce_scatter(sum, float32, 8 elements in counts 2 6",
      [&](MpiCommunicator& c) { scatter(c, 2); });
  check_mismatch(
      "begin_reduce_scatter(sum, float32, 8 elements in counts 1 7",
      [&](MpiCommunicator& c) { scatter(c, 1); }, "begin_all_gather(float32, 8 elements in counts",
      [&](MpiCommunicator& c) {
        Counts counts(static_cast<std::size_t>(c.size()));
        counts.back() = 8;
        std::vector<float> all(8);
        c.begin_all_gather<float>(some, all, counts).finish();
      });
  check_mismatch(
      sum_of_floats,
      [](MpiCommunicator& c) {
        auto sum = c.begin_all_reduce<float>(some, some);
        c.barrier();  // waits for the sum
      },
      "all_gather(uint8, 0 elements",
      [](MpiCommunicator& c) {
        const Counts none(static_cast<std::size_t>(c.size()));
        c.all_gather<std::uint8_t>({}, std::span<std::uint8_t>(), none);
      });
}

TEST_CASE("a call that was left out before an equal one") {
  MpiCommunicator ranks = checked_ranks();
  if (World::get().lacks(2)) return;
  const int last = ranks.size() - 1;
  const bool leaves_out = ranks.rank() == last;
  const std::string ahead = "rank " + std::to_string(last);
  SUBCASE("by the caller's own mark") {
    mark_step(leaves_out ? 4 : 3);
    const std::string message = message_of<collective_error>([&] { sum_floats(ranks); });
    const std::string places = ahead + " is at step 4, the others at step 3: it";
    check_mentions(message,
                   {(ranks.size() > 2 ? places : ahead) + " left out " + sum_of_floats, "step 4"});
    mark_step(0);
  }
  SUBCASE("by the place in a model") {
    const detail::MarkedPhase phase(leaves_out ? 12 : 11, 0,
                                    leaves_out ? Phase::forward : Phase::backward, {});
    const detail::MarkedPart block({0, [] { return std::string("Block"); }, true});
    const detail::MarkedPart part({3, [] { return std::string("Product"); }, false});
    const std::string message = message_of<collective_error>([&] { sum_floats(ranks); });
    check_mentions(message, {"at step 12", "at step 11", "left out 0/3: Product, backward"});
  }
  SUBCASE("by what the ranks were given") {
    const detail::GivenAlike given{
        .seed = 1, .model = 2, .inputs = leaves_out ? 3U : 4U, .targets = 5};
    const detail::MarkedPhase phase(1, 0, Phase::forward, given);
    const std::string message = message_of<collective_error>([&] { sum_floats(ranks); });
    check_mentions(message, {"given other inputs than rank", "found at step 1."});
    CHECK_FALSE(contains(message, "seed than"));
  }
  sum_floats(ranks);  // the group is as it was
}

TEST_CASE("a message of another step") {
  MpiCommunicator ranks = checked_ranks();
  if (World::get().lacks(2) || ranks.rank() > 1) return;
  const detail::MarkedPhase phase(3, ranks.rank() == 0 ? 1 : 2, Phase::forward, {});
  // Stages of a pipeline are at different layers by right.
  const detail::MarkedPart part(
      {static_cast<std::size_t>(ranks.rank()), [] { return std::string("Stage"); }, true});
  if (ranks.rank() == 0) return ranks.send(std::span<const float>(some), 1);
  const std::string message =
      message_of<collective_error>([&] { ranks.receive(std::span(some), 0); });
  CHECK(contains(message,
                 "tag 0) at step 3, batch 1, rank 1 called receive(float32, 8 elements, "
                 "from 0, tag 0) at step 3, batch 2, 1: Stage, forward; dtype"));
}

TEST_CASE("another collective of the same data") {
  const auto counts = [](MpiCommunicator& c) {
    return Counts(static_cast<std::size_t>(c.size()), 1);
  };
  check_mismatch(
      "all_gather(float32, ",
      [&](MpiCommunicator& c) {
        std::vector<float> out(counts(c).size());
        c.all_gather<float>(std::span(some).first(1), out, counts(c));
      },
      "reduce_scatter(sum, float32, ",
      [&](MpiCommunicator& c) {
        const std::vector<float> in(counts(c).size());
        c.reduce_scatter<float>(in, std::span(some).first(1), counts(c));
      });
}

TEST_CASE("other blocks of the same total") {
  const auto gather = [](MpiCommunicator& c, Counts counts) {
    std::vector<float> out(4);
    c.all_gather<float>(std::span(some).first(counts[static_cast<std::size_t>(c.rank())]), out,
                        counts);
  };
  const auto counts = [](MpiCommunicator& c, std::size_t first) {
    Counts all(static_cast<std::size_t>(c.size()));
    all[0] = first;
    all[1] = 4 - first;
    return all;
  };
  check_mismatch(
      "all_gather(float32, 4 elements in counts 1 3",
      [&](MpiCommunicator& c) { gather(c, counts(c, 1)); },
      "all_gather(float32, 4 elements in counts 2 2",
      [&](MpiCommunicator& c) { gather(c, counts(c, 2)); });
}

TEST_CASE("a call left out") {
  check_mismatch(sum_of_floats, sum_floats, "split()", [](MpiCommunicator& c) { c.split(0, 0); });
}

TEST_CASE("blocks of an all_to_all that the receiver does not expect") {
  MpiCommunicator ranks = checked_ranks();
  const auto size = static_cast<std::size_t>(ranks.size());
  if (World::get().lacks(2)) return;
  Counts sent(size, 2);
  const Counts received(size, 2);
  if (ranks.rank() == 1) sent[0] = 3;
  if (ranks.rank() == 2) sent[1] = 4;  // all ranks tell of the first difference
  const std::vector<float> in(std::accumulate(sent.begin(), sent.end(), std::size_t{0}));
  std::vector<float> out(2 * size);
  const std::string message =
      message_of<collective_error>([&] { ranks.all_to_all<float>(in, sent, out, received); });
  CHECK(contains(message,
                 "ranks disagree in all_to_all: rank 1 sends 3 elements to rank 0, which called it "
                 "to receive 2 from there"));
  ranks.barrier();
}

TEST_CASE("a rank that leaves") {
  MpiCommunicator world = checked_ranks();
  const int last = world.size() - 1;
  if (World::get().lacks(2)) return;
  const bool stays = world.rank() != last;
  {
    MpiCommunicator group = world.split(0, 0);
    if (stays) {
      const std::string message =
          message_of<peer_error>([&] { group.all_reduce<float>(some, some); });
      CHECK(message == "in " + sum_of_floats + ": rank " + std::to_string(last) +
                           " has left the group, and this call waits for it");
      CHECK(contains(message_of<peer_error>([&] { group.barrier(); }), "has left the group"));
      CHECK(contains(
          message_of<peer_error>([&] { group.begin_all_reduce<float>(some, some).finish(); }),
          "has left the group"));
      const Counts counts(static_cast<std::size_t>(group.size()), some.size());
      std::vector<float> all(detail::total(counts));
      CHECK(contains(message_of<peer_error>(
                         [&] { group.begin_all_gather<float>(some, all, counts).finish(); }),
                     "has left the group"));
      CHECK(contains(message_of<peer_error>([&] { group.receive(std::span(some), last); }),
                     "has left the group"));
      CHECK(contains(message_of<peer_error>([&] { group.receive(std::span(some), last); }),
                     "has left the group"));
    }
  }
  world.barrier();  // another group, which nobody has left
}

TEST_CASE("sums under way end although a rank leaves, if all have begun them") {
  MpiCommunicator world(MPI_COMM_WORLD, {.timeout = std::chrono::seconds(30)});
  if (World::get().lacks(2)) return;
  const int last = world.size() - 1;
  {
    MpiCommunicator group = world.split(0, 0);
    auto sum = group.begin_all_reduce<float>(many, many);
    if (world.rank() != last) {
      std::vector<decltype(sum)> later;
      const std::string at_once = message_of<peer_error>([&] {
        for (int i = 0; i < 2; ++i) later.push_back(group.begin_all_reduce<float>(more, more));
      });
      CHECK(message_of<peer_error>([&] { sum.finish(); }) == "");
      const std::string has_left = "rank " + std::to_string(last) + " has left the group";
      CHECK((later.size() == 2 || contains(at_once, has_left)));  // it may have left before
      for (auto& one : later)
        CHECK(contains(message_of<peer_error>([&] { one.finish(); }), has_left));
    }
  }
  world.barrier();
}

TEST_CASE("a rank that hears in a message that another has left tells those who wait for it") {
  MpiCommunicator world = checked_ranks();
  if (World::get().lacks(3)) return;
  const int last = world.size() - 1;
  for (const bool first_leaves_too : {true, false}) {
    std::optional<MpiCommunicator> group = world.split(0, 0);
    if (world.rank() != last) {
      const std::string message = message_of<peer_error>([&] {
        if (world.rank() == 0)
          group->receive(std::span(some), last);
        else
          group->barrier();
      });
      // Leaves the test if it is wrong: the second time, it would be a wait until the time-out.
      REQUIRE(contains(message, "rank " + std::to_string(last) + " has left the group"));
    }
    if (world.rank() == last || (world.rank() == 0 && first_leaves_too)) group.reset();
    world.barrier();
  }
}

TEST_CASE("a rank that leaves after a message tells every rank that waits for its next one") {
  MpiCommunicator world = checked_ranks();
  if (World::get().lacks(2)) return;
  const int last = world.size() - 1;
  std::optional<MpiCommunicator> group = world.split(0, 0);
  if (world.rank() == last) {
    group->send(std::span<const float>(some), 0);
    group.reset();
  } else {
    if (world.rank() == 0) group->receive(std::span(some), last);
    if (world.rank() <= 1)
      CHECK(contains(message_of<peer_error>([&] { group->receive(std::span(some), last); }),
                     "rank " + std::to_string(last) + " has left the group"));
  }
  world.barrier();
}

TEST_CASE("what ended groups have left unread reaches no later one") {
  MpiCommunicator world = checked_ranks();
  for (int round = 0; round < 50; ++round) {
    MpiCommunicator group = world.split(world.rank() % 2, 0);
    std::int32_t one = 1;
    group.all_reduce(std::span<const std::int32_t>(&one, 1), std::span(&one, 1));
    CHECK(one == group.size());
  }
}

TEST_CASE("a message of another type, length or tag") {
  MpiCommunicator ranks(MPI_COMM_WORLD, {.largest_piece = 3000});  // `many` goes in two
  if (World::get().lacks(2)) return;
  if (ranks.rank() == 0) {
    ranks.send(std::span<const float>(some), 1);
    ranks.send(std::span<const float>(many), 1);
    ranks.send(std::span<const float>(some), 1, 3);
    some[0] = 7;
    ranks.send(std::span<const float>(some), 1, 4);
    some[0] = 0;
  } else if (ranks.rank() == 1) {
    const auto receive = [&](auto& data, int tag) {
      return message_of<collective_error>([&] { ranks.receive(std::span(data), 0, tag); });
    };
    CHECK(
        receive(doubles, 0) ==
        "rank 0 called send(float32, 8 elements, to 1, tag 0), rank 1 called receive(float64, 8 "
        "elements, from 0, tag 0); dtype, elements, tag and step of a message must be the same on "
        "both sides");
    CHECK(contains(receive(some, 0), "send(float32, 5000 elements, to 1, tag 0)"));
    CHECK(contains(receive(some, 0), "send(float32, 8 elements, to 1, tag 3)"));
    std::vector<float> got(8);
    ranks.receive(std::span(got), 0, 4);  // the wrong ones are gone, this one is whole
    CHECK(got[0] == 7);
  }
  ranks.barrier();
}
