// What a counting communicator writes down.

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"

using namespace shardwise;

namespace {

template <class C>
std::vector<CountedCall> calls(const C& c) {
  return {c.log().begin(), c.log().end()};
}

}  // namespace

TEST_CASE("each call is logged with dtype and the elements that this rank passes in") {
  run_ranks(2, [](ThreadCommunicator& threads) {
    CountingCommunicator c(threads);
    const auto rank = static_cast<std::size_t>(c.rank());
    const std::array<std::size_t, 2> counts{3, 4};
    std::vector<float> whole(7);
    std::vector<float> mine(counts[rank]);
    std::vector<bf16> small(2);
    const std::vector<std::size_t> exchanged(2, 5);
    std::vector<double> in(10);
    std::vector<double> out(10);

    c.all_reduce<bf16>(small, small, Reduction::max);
    c.all_gather<float>(mine, whole, counts);
    c.reduce_scatter<float>(whole, mine, counts);
    c.broadcast(std::span(whole), 1);
    c.gather<float>(mine, whole, counts, 0);
    c.scatter<float>(whole, mine, counts, 0);
    c.all_to_all<double>(in, exchanged, out, exchanged);
    if (rank == 0) c.send<bf16>(small, 1, 3);
    if (rank == 1) c.receive(std::span(small), 0, 3);
    c.barrier();
    auto half = c.split(0, 0);
    c.read_peers(Call{.operation = Operation::all_to_all, .dtype = Dtype::float32},
                 std::span<const float>(mine), [](std::span<const float* const>) noexcept {});

    CHECK(calls(c) == std::vector<CountedCall>{
                          {Operation::all_reduce, Dtype::bfloat16, 2},
                          {Operation::all_gather, Dtype::float32, counts[rank]},
                          {Operation::reduce_scatter, Dtype::float32, 7},
                          {Operation::broadcast, Dtype::float32, 7},
                          {Operation::gather, Dtype::float32, counts[rank]},
                          {Operation::scatter, Dtype::float32, rank == 0 ? 7U : 0U},
                          {Operation::all_to_all, Dtype::float64, 10},
                          {rank == 0 ? Operation::send : Operation::receive, Dtype::bfloat16, 2},
                          {Operation::barrier, Dtype::uint8, 0},
                          {Operation::split, Dtype::uint8, 0},
                          {Operation::all_to_all, Dtype::float32, counts[rank]},
                      });
    CHECK(half.log().empty());
    half.barrier();
    CHECK(half.log().size() == 1);
    CHECK(c.log().size() == 11);
  });
}

TEST_CASE("copies share a log, which keeps its memory when it is cleared") {
  CountingCommunicator c{SingleRank()};
  CountingCommunicator copy = c;
  c.reserve(16);
  copy.barrier();
  REQUIRE(c.log().size() == 1);
  const CountedCall* const memory = c.log().data();
  c.clear();
  CHECK(copy.log().empty());
  for (int i = 0; i < 16; ++i) copy.barrier();
  CHECK(c.log().data() == memory);
}
