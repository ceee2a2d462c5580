// Every collective gives what its contract says: each communicator, dtype and rank count.

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "support/effort.hpp"
#include "support/ranks.hpp"
#include "unit/comm/check_collectives.hpp"

using namespace shardwise;
using testing::Ranks;
using testing::run_on_ranks;

using comm_test::check_everything;
using comm_test::Counts;
using comm_test::equal;

namespace {

template <class T>
void check_all_communicators() {
  SingleRank single;
  check_everything<T>(single);
  for (const int ranks : testing::at_ranks({1, 2, 3, 4, 5, 8}))
    run_on_ranks(ranks, [](Ranks& c) { check_everything<T>(c); });
}

}  // namespace

TEST_CASE("collectives: float") { check_all_communicators<float>(); }
TEST_CASE("collectives: double") { check_all_communicators<double>(); }
TEST_CASE("collectives: bf16") { check_all_communicators<bf16>(); }
TEST_CASE("collectives: fp16") { check_all_communicators<fp16>(); }
TEST_CASE("collectives: int64") { check_all_communicators<std::int64_t>(); }
TEST_CASE("collectives: uint8") { check_all_communicators<std::uint8_t>(); }

TEST_CASE("collectives: through a counting communicator") {
  run_on_ranks(3, [](Ranks& c) {
    CountingCommunicator<Ranks> counting(c);
    check_everything<float>(counting);
  });
}

TEST_CASE("empty buffers may be null pointers") {
  run_on_ranks(3, [](Ranks& c) {
    const Counts none(3, 0);
    const std::span<const float> in;
    const std::span<float> out;
    c.all_reduce(in, out);
    c.all_gather(in, out, none);
    c.reduce_scatter(in, out, none);
    c.broadcast(out, 1);
    c.gather(in, out, none, 2);
    c.scatter(in, out, none, 0);
    c.all_to_all(in, none, out, none);
    if (c.rank() == 0) c.send(in, 1);
    if (c.rank() == 1) c.receive(out, 0);
  });
}

TEST_CASE("sums run in rank order, on every rank and for every size") {
  // 2^24 + 1 - 2^24 + 1 + 1 in float: the order of the operands decides the result.
  const std::vector<float> operands{0x1p24F, 1, -0x1p24F, 1, 1};
  float in_order = 0;
  for (const float x : operands) in_order += x;
  for (const std::size_t n : {std::size_t{7}, std::size_t{5000}})
    run_on_ranks(5, [&](Ranks& c) {
      std::vector<float> data(n, operands[static_cast<std::size_t>(c.rank())]);
      const std::vector<float> in = data;
      c.all_reduce<float>(data, data);
      CHECK(data == std::vector<float>(n, in_order));
      std::vector<float> block(n);
      std::vector<float> five(5 * n, in[0]);
      c.reduce_scatter<float>(five, block, Counts(5, n));
      CHECK(block == std::vector<float>(n, in_order));
    });
}

TEST_CASE("two-byte types are summed in float and rounded once") {
  // In bf16, 256 + 1 rounds back to 256; 256 + 1 + 1 is 258.
  for (const std::size_t n : {std::size_t{3}, std::size_t{4000}})
    run_on_ranks(3, [&](Ranks& c) {
      std::vector<bf16> data(n, bf16(c.rank() == 0 ? 256.0F : 1.0F));
      c.all_reduce<bf16>(data, data);
      CHECK(equal<bf16>(data, std::vector<bf16>(n, bf16(258.0F))));
    });
}

TEST_CASE("a NaN of any rank comes out of every reduction") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int bad = 0; bad < 3; ++bad)
    for (const Reduction op : {Reduction::sum, Reduction::max, Reduction::min})
      run_on_ranks(3, [&](Ranks& c) {
        std::vector<float> data{1, c.rank() == bad ? nan : 2.0F};
        c.all_reduce<float>(data, data, op);
        CHECK(data[0] == (op == Reduction::sum ? 3.0F : 1.0F));
        CHECK(data[1] != data[1]);
      });
}

#ifndef SHARDWISE_TEST_DEVICE  // whose send waits for its receiver
TEST_CASE("messages arrive in order and copy what was sent") {
  run_on_ranks(3, [](Ranks& c) {
    const int next = (c.rank() + 1) % 3;
    const int previous = (c.rank() + 2) % 3;
    for (int round = 0; round < 50; ++round) {
      std::vector<std::int64_t> data;
      for (int i = 0; i < 5; ++i) {
        data.assign(static_cast<std::size_t>(100 * i), 1000 * c.rank() + 10 * round + i);
        c.send<std::int64_t>(data, next, i);
      }
      for (int i = 0; i < 5; ++i) {
        data.assign(static_cast<std::size_t>(100 * i), -1);
        c.receive(std::span(data), previous, i);
        CHECK(data == std::vector<std::int64_t>(static_cast<std::size_t>(100 * i),
                                                1000 * previous + 10 * round + i));
      }
    }
  });
}
#endif

TEST_CASE("split groups by color and orders by key, then rank") {
  run_on_ranks(8, [](Ranks& world) {
    const int rank = world.rank();
    Ranks odd_even = world.split(rank % 2, -rank);
    CHECK(odd_even.size() == 4);
    CHECK(odd_even.rank() == 3 - rank / 2);
    check_everything<float>(odd_even);

    Ranks same_key = world.split(rank < 5 ? -7 : 1000, 0);
    CHECK(same_key.size() == (rank < 5 ? 5 : 3));
    CHECK(same_key.rank() == (rank < 5 ? rank : rank - 5));

    Ranks pair = odd_even.split(odd_even.rank() / 2, 0);
    CHECK(pair.size() == 2);
    std::int64_t total = rank;
    pair.all_reduce(std::span<const std::int64_t>(&total, 1), std::span(&total, 1));
    CHECK(total == (rank % 2 == 0 ? (rank < 4 ? 2 : 10) : (rank < 4 ? 4 : 12)));
    check_everything<bf16>(pair);

    Ranks alone = world.split(rank, 0);
    CHECK(alone.size() == 1);
    check_everything<double>(alone);
    check_everything<float>(world);
  });
}

TEST_CASE("a mesh keeps the contract as a whole and along each of its axes") {
  run_on_ranks(8, [](Ranks& world) {
    MeshRanks<Ranks> ranks(world, {.pipeline = 2, .data = 2, .tensor = 2});
    int bit = 4;
    for (const MeshAxis axis : {MeshAxis::pipeline, MeshAxis::data, MeshAxis::tensor}) {
      Ranks& group = ranks.along(axis);
      CHECK(group.size() == 2);
      std::int64_t total = 1 << world.rank();
      group.all_reduce(std::span<const std::int64_t>(&total, 1), std::span(&total, 1));
      CHECK(total == (1 << (world.rank() & ~bit)) + (1 << (world.rank() | bit)));
      check_everything<float>(group);
      bit /= 2;
    }
    check_everything<double>(ranks.along(MeshAxis::replica));
    check_everything<bf16>(ranks);
  });
}

TEST_CASE("copies of a communicator stand for the same rank") {
  run_on_ranks(2, [](Ranks& c) {
    Ranks copy = c;
    for (int i = 0; i < 5; ++i) {
      c.barrier();
      copy.barrier();
    }
  });
}
