// Every collective of NcclCommunicator gives what the contract says, on a stand-in for NCCL: each
// dtype, rank count and way to cut, in place too. Values are small integers, so sums are exact.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "nccl/ranks.hpp"
#include "nccl/stand_in.hpp"
#include "shardwise/comm/describe_mesh.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using testing::error_of;
using testing::nothing_is_left;
using testing::run_nccl_ranks;
using testing::soon;

namespace {

using Counts = std::vector<std::size_t>;

template <class T>
T value(std::size_t rank, std::size_t i) {
  return static_cast<T>(static_cast<float>((3 * rank + 5 * i + rank * i) % 7));
}

template <class T>
std::vector<T> values(std::size_t rank, std::size_t begin, std::size_t n) {
  std::vector<T> result(n);
  for (std::size_t i = 0; i < n; ++i) result[i] = value<T>(rank, begin + i);
  return result;
}

template <class T>
std::vector<T> reduced(Reduction how, std::size_t ranks, std::size_t begin, std::size_t n) {
  std::vector<T> result(n);
  for (std::size_t i = 0; i < n; ++i) {
    auto all = static_cast<float>(value<T>(0, begin + i));
    for (std::size_t r = 1; r < ranks; ++r) {
      const auto next = static_cast<float>(value<T>(r, begin + i));
      all = how == Reduction::sum   ? all + next
            : how == Reduction::max ? std::max(all, next)
                                    : std::min(all, next);
    }
    result[i] = static_cast<T>(all);
  }
  return result;
}

template <class T>
bool equal(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](T x, T y) { return static_cast<float>(x) == static_cast<float>(y); });
}

void check(bool right, const char* what, int rank) {
  CAPTURE(what);
  CAPTURE(rank);
  CHECK(right);
}

std::vector<Counts> ways_to_cut(std::size_t ranks) {
  std::vector<Counts> ways(4, Counts(ranks));
  for (std::size_t r = 0; r < ranks; ++r) {
    ways[0][r] = 3;
    ways[1][r] = r + 1;
    ways[2][r] = r % 2 == 0 ? 0 : 4;
    ways[3][r] = 0;
  }
  return ways;
}

template <class T>
void check_way(NcclCommunicator& nccl, const Counts& counts) {
  const int rank = nccl.rank();
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t begin = std::accumulate(
      counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
  std::vector<T> gathered;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const std::vector<T> block = values<T>(r, 0, counts[r]);
    gathered.insert(gathered.end(), block.begin(), block.end());
  }

  const std::vector<T> mine = values<T>(me, 0, counts[me]);
  const std::vector<T> whole = values<T>(me, 0, all);
  std::vector<T> out(all, T(9.0F));
  std::vector<T> part(counts[me], T(9.0F));
  nccl.all_gather(mine, std::span(out), counts);
  nccl.wait();
  check(equal(out, gathered), "all_gather", rank);

  std::fill(out.begin(), out.end(), T(9.0F));
  std::copy(mine.begin(), mine.end(), out.begin() + static_cast<std::ptrdiff_t>(begin));
  nccl.all_gather(std::span<const T>(out).subspan(begin, mine.size()), std::span(out), counts);
  nccl.wait();
  check(equal(out, gathered), "all_gather in place", rank);

  for (const Reduction how : {Reduction::sum, Reduction::max, Reduction::min}) {
    nccl.reduce_scatter(whole, std::span(part), counts, how);
    nccl.all_reduce(whole, std::span(out), how);
    nccl.wait();
    check(equal(part, reduced<T>(how, counts.size(), begin, part.size())), "reduce_scatter", rank);
    check(equal(out, reduced<T>(how, counts.size(), 0, all)), "all_reduce", rank);
  }
  out = whole;
  nccl.all_reduce(out, std::span(out));
  nccl.wait();
  check(equal(out, reduced<T>(Reduction::sum, counts.size(), 0, all)), "all_reduce in place", rank);
  out = whole;
  { const auto sum = nccl.start_all_reduce(out, std::span(out)); }
  nccl.wait();
  check(equal(out, reduced<T>(Reduction::sum, counts.size(), 0, all)), "started in place", rank);
  std::fill(out.begin(), out.end(), T(9.0F));
  { const auto sum = nccl.start_all_reduce(whole, std::span(out)); }
  nccl.wait();
  check(equal(out, reduced<T>(Reduction::sum, counts.size(), 0, all)), "start_all_reduce", rank);
  std::fill(part.begin(), part.end(), T(9.0F));
  { const auto sum = nccl.start_reduce_scatter(whole, std::span(part), counts); }
  nccl.wait();
  check(equal(part, reduced<T>(Reduction::sum, counts.size(), begin, part.size())),
        "start_reduce_scatter", rank);

  for (int root = 0; root < nccl.size(); ++root) {
    out = whole;
    nccl.broadcast(std::span(out), root);
    nccl.wait();
    check(equal(out, values<T>(static_cast<std::size_t>(root), 0, all)), "broadcast", rank);

    const bool is_root = rank == root;
    std::fill(out.begin(), out.end(), T(9.0F));
    nccl.gather(mine, is_root ? std::span(out) : std::span<T>(), counts, root);
    nccl.wait();
    check(!is_root || equal(out, gathered), "gather", rank);

    std::fill(part.begin(), part.end(), T(9.0F));
    nccl.scatter(is_root ? std::span<const T>(whole) : std::span<const T>(), std::span(part),
                 counts, root);
    nccl.wait();
    check(equal(part, values<T>(static_cast<std::size_t>(root), begin, part.size())), "scatter",
          rank);
  }
}

/// Rank q sends (q + 2r) % 3 elements to rank r.
template <class T>
void check_all_to_all(NcclCommunicator& nccl) {
  const auto ranks = static_cast<std::size_t>(nccl.size());
  const auto me = static_cast<std::size_t>(nccl.rank());
  Counts sent, received;
  std::vector<T> in, expected;
  for (std::size_t r = 0; r < ranks; ++r) {
    sent.push_back((me + 2 * r) % 3);
    received.push_back((r + 2 * me) % 3);
    for (const T x : values<T>(me, 10 * r, sent[r])) in.push_back(x);
    for (const T x : values<T>(r, 10 * me, received[r])) expected.push_back(x);
  }
  std::vector<T> out(expected.size(), T(9.0F));
  nccl.all_to_all(in, sent, std::span(out), received);
  nccl.wait();
  check(equal(out, expected), "all_to_all", nccl.rank());
}

template <class T>
void check_dtype() {
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    run_nccl_ranks(ranks, 20s, [&](NcclCommunicator& nccl, ThreadCommunicator&) {
      for (const Counts& counts : ways_to_cut(static_cast<std::size_t>(ranks)))
        check_way<T>(nccl, counts);
      check_all_to_all<T>(nccl);
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
    { const auto sum = nccl.start_all_reduce(std::span<const float>(), std::span<float>()); }
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
    check_way<float>(ranks.along(tensor), {2, 3});
    check_way<float>(ranks.along(data), {1, 0, 2});
    check_way<bf16>(ranks, {1, 2, 3, 4, 5, 0});
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
    check_way<float>(nccl, {2, 3});
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
    CHECK(error_of([&] { const auto sum = nccl.start_all_reduce(two, std::span(three)); }) ==
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
