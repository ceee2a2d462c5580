// NcclCommunicator keeps the contract of communicators, on a stand-in for NCCL: each dtype and rank
// count.

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nccl/ranks.hpp"
#include "nccl/stand_in.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/describe_mesh.hpp"
#include "shardwise/comm/moves.hpp"
#include "unit/comm/check_collectives.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using testing::error_of;
using testing::nothing_is_left;
using testing::run_nccl_ranks;
using testing::soon;

namespace {

using comm_test::check_everything;
using comm_test::Counts;

/// Waits for each call, so that its result is there at return, but for what it begins.
class Waiting : public BeginningCollectives<Waiting> {
 public:
  explicit Waiting(NcclCommunicator ranks) : ranks_(std::move(ranks)) {}

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }
  Waiting split(int color, int key) { return Waiting(ranks_.split(color, key)); }
  void wait() { ranks_.wait(); }

 private:
  friend Collectives<Waiting>;
  friend BeginningCollectives<Waiting>;

  template <class Move>
  void move(const Call&, const Move& m) {
    m.on(ranks_);
    wait();
  }
  template <class Move>
  auto begin(const Call&, const Move& m) {
    return m.begun_on(ranks_);
  }

  NcclCommunicator ranks_;
};

template <class T>
void check_contract(NcclCommunicator& ranks) {
  Waiting waiting(ranks);
  check_everything<T>(waiting);
}

void check(bool right, const char* what, int rank) {
  CAPTURE(what);
  CAPTURE(rank);
  CHECK(right);
}

template <class T>
void check_dtype() {
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    run_nccl_ranks(ranks, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
      check_contract<T>(nccl);
      check(nccl.close(), "close", -1);
    });
    CHECK(stand_in::alive == 0);
  }
}

}  // namespace

TEST_CASE("nccl: float") { check_dtype<float>(); }
TEST_CASE("nccl: double") { check_dtype<double>(); }
TEST_CASE("nccl: bf16") { check_dtype<bf16>(); }
TEST_CASE("nccl: fp16") { check_dtype<fp16>(); }
TEST_CASE("nccl: int32") { check_dtype<std::int32_t>(); }
TEST_CASE("nccl: int64") { check_dtype<std::int64_t>(); }
TEST_CASE("nccl: uint8") { check_dtype<std::uint8_t>(); }

TEST_CASE("nccl: empty buffers may be null pointers") {
  run_nccl_ranks(3, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    const Counts none(3);
    nccl.all_reduce(std::span<const float>(), std::span<float>());
    { const auto sum = nccl.begin_all_reduce(std::span<const float>(), std::span<float>()); }
    nccl.all_gather(std::span<const float>(), std::span<float>(), none);
    nccl.reduce_scatter(std::span<const float>(), std::span<float>(), none);
    nccl.broadcast(std::span<float>(), 2);
    nccl.gather(std::span<const float>(), std::span<float>(), none, 1);
    nccl.scatter(std::span<const float>(), std::span<float>(), none, 1);
    nccl.all_to_all(std::span<const float>(), none, std::span<float>(), none);
    nccl.barrier();
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: messages arrive in order") {
  run_nccl_ranks(3, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    const int next = (nccl.rank() + 1) % 3;
    const int previous = (nccl.rank() + 2) % 3;
    for (int i = 0; i < 5; ++i) {
      const std::vector<int> mine{nccl.rank(), i};
      std::vector<int> got(2, -1);
      if (nccl.rank() == 0) nccl.send(std::span<const int>(mine), next, 7);
      nccl.receive(std::span(got), previous, 7);
      if (nccl.rank() != 0) nccl.send(std::span<const int>(mine), next, 7);
      nccl.wait();
      check(got == std::vector<int>{previous, i}, "message", nccl.rank());
    }
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: split groups by color and orders by key, then rank") {
  run_nccl_ranks(5, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    const int rank = nccl.rank();
    NcclCommunicator part = nccl.split(rank % 2 == 0 ? -7 : 2147483647, -rank);
    check(part.size() == (rank % 2 == 0 ? 3 : 2), "size of part", rank);
    check(part.rank() == (rank % 2 == 0 ? (4 - rank) / 2 : (3 - rank) / 2), "rank in part", rank);
    int sum = 0;
    part.all_reduce(std::span<const int>(&rank, 1), std::span(&sum, 1));
    part.wait();
    check(sum == (rank % 2 == 0 ? 6 : 4), "sum of part", rank);
    NcclCommunicator alone = part.split(part.rank(), 0);
    check(alone.size() == 1, "part of a part", rank);
    NcclCommunicator same = nccl.split(0, 0);
    check(same.rank() == rank && same.size() == 5, "equal keys", rank);
    check(same.stream() == nccl.stream(), "stream", rank);
    for (NcclCommunicator* const group : {&alone, &same, &part, &nccl}) {
      check(group->close(), "close", rank);
    }
  });
  CHECK(stand_in::alive == 0);
}

TEST_CASE("nccl: a mesh has a group along each axis, is described, and closes all") {
  using enum MeshAxis;
  run_nccl_ranks(6, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    const int rank = nccl.rank();
    MeshRanks<NcclCommunicator> ranks(nccl, {.data = 3, .tensor = mesh::rest});
    check(ranks.along(data).gathered(rank) == std::vector{rank % 2, rank % 2 + 2, rank % 2 + 4},
          "ranks along data", rank);
    check(ranks.along(tensor).gathered(rank) == std::vector{rank / 2 * 2, rank / 2 * 2 + 1},
          "ranks along tensor", rank);
    check(ranks.along(replica).gathered(rank) == std::vector{rank}, "ranks along replica", rank);
    check_contract<float>(ranks.along(tensor));
    check_contract<float>(ranks.along(data));
    check_contract<bf16>(ranks);
    check(describe(ranks, rank < 3 ? "a" : "b").find("data 1: a 2, b 3\n") != std::string::npos,
          "describe", rank);
    check(ranks.close(), "close", rank);
  });
  CHECK(stand_in::alive == 0);
}

TEST_CASE("nccl: a rank with another mesh is told on every rank") {
  run_nccl_ranks(3, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    const int rank = nccl.rank();
    const mesh sizes = rank == 1 ? mesh{.data = 3} : mesh{.tensor = 3};
    CHECK(error_of([&] { MeshRanks(nccl, sizes); }) ==
          "collective_error: ranks disagree on the mesh: ranks 0, 2 have tensor=3, rank 1 has "
          "data=3; "
          "give all ranks the same one");
    check(nccl.close(), "close", rank);
  });
  CHECK(stand_in::alive == 0);
}

TEST_CASE("nccl: a failure of one group of a mesh fails all its groups") {
  using enum MeshAxis;
  run_nccl_ranks(4, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    MeshRanks<NcclCommunicator> ranks(nccl, {.data = 2, .tensor = 2});
    ranks.barrier();
    ranks.along(tensor).abort();
    const auto fails = [](NcclCommunicator& group) {
      return error_of([&] {
               group.barrier();
               group.wait();
             }).find("abort() was called") != std::string::npos;
    };
    check(soon([&] { return fails(ranks.along(data)) && fails(ranks); }), "failed", ranks.rank());
  });
  CHECK(nothing_is_left());
}

TEST_CASE("nccl: NCCL may take its time for every call") {
  stand_in::progress_turns = 3;
  run_nccl_ranks(2, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    check_contract<float>(nccl);
    NcclCommunicator part = nccl.split(0, 0);
    part.barrier();
    check(part.close() && nccl.close(), "close", -1);
  });
  stand_in::progress_turns = 0;
  CHECK(stand_in::alive == 0);
}

TEST_CASE("nccl: mistakes that a rank sees alone") {
  run_nccl_ranks(2, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
    std::vector<float> two(2), three(3), five(5);
    const Counts counts{2, 3};
    if (nccl.rank() != 0) return;
    CHECK(error_of([&] { nccl.all_reduce(two, std::span(three)); }) ==
          "shape_error: all_reduce: the output has 3 elements and must have 2");
    CHECK(error_of([&] { const auto sum = nccl.begin_all_reduce(two, std::span(three)); }) ==
          "shape_error: all_reduce: the output has 3 elements and must have 2");
    CHECK(
        error_of([&] {
          nccl.all_reduce(std::span<const float>(five).first(3), std::span(five).last(3));
        }) ==
        "argument_error: all_reduce: input and output overlap; use two buffers, or work exactly in "
        "place");
    CHECK(error_of([&] { nccl.all_gather(three, std::span(five), counts); }) ==
          "shape_error: all_gather: the input has 3 elements and must have 2");
    CHECK(error_of([&] { nccl.all_gather(two, std::span(five), Counts{5}); }) ==
          "shape_error: all_gather: 1 counts are given for 2 ranks; give one for each rank");
    CHECK(error_of([&] { nccl.reduce_scatter(five, std::span(three), counts); }) ==
          "shape_error: reduce_scatter: the output has 3 elements and must have 2");
    CHECK(error_of([&] { nccl.broadcast(std::span(two), 2); }) ==
          "argument_error: broadcast: root 2 is no rank of this group; its ranks are 0 to 1");
    CHECK(error_of([&] { nccl.gather(two, std::span(three), counts, 0); }) ==
          "shape_error: gather: the output has 3 elements and must have 5");
    CHECK(error_of([&] { nccl.scatter(three, std::span(two), counts, 0); }) ==
          "shape_error: scatter: the input has 3 elements and must have 5");
    CHECK(error_of([&] { nccl.all_to_all(two, counts, std::span(two), counts); }) ==
          "shape_error: all_to_all: the input has 2 elements and must have 5");
    CHECK(
        error_of([&] { nccl.send(std::span<const float>(two), 0); }) ==
        "argument_error: send: receiver 0 is the calling rank itself; messages go to other ranks");
    CHECK(error_of([&] { nccl.receive(std::span(two), -1); }) ==
          "argument_error: receive: sender -1 is no rank of this group; its ranks are 0 to 1");
    CHECK(error_of([&] { nccl.check(); }) == "");
  });
  CHECK(nothing_is_left());
}
