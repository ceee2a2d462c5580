// Every collective gives what its contract says: each communicator, dtype, rank count and way to
// cut, in place too. Values are small integers, so that every comparison is exact.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "support/ranks.hpp"

using namespace shardwise;
using testing::Ranks;
using testing::run_on_ranks;

namespace {

using Counts = std::vector<std::size_t>;

/// Element i of rank r's data. 0 to 6, so that sums over 8 ranks fit and are exact in every dtype.
template <class T>
T value(std::size_t rank, std::size_t i) {
  return T(static_cast<float>((3 * rank + 5 * i + rank * i) % 7));
}

template <class T>
std::vector<T> values(std::size_t rank, std::size_t begin, std::size_t n) {
  std::vector<T> result(n);
  for (std::size_t i = 0; i < n; ++i) result[i] = value<T>(rank, begin + i);
  return result;
}

template <class T>
bool equal(std::span<const T> a, std::span<const T> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

/// Outside of templates, where doctest's macros would multiply the time to compile.
void check(bool right, const char* what, int rank, std::size_t elements) {
  CAPTURE(what);
  CAPTURE(rank);
  CAPTURE(elements);
  CHECK(right);
}

std::size_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::size_t offset(const Counts& counts, std::size_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::size_t{0});
}

/// Ways to cut: even, uneven, some empty, all empty, too large to be copied, some of each.
std::vector<Counts> ways_to_cut(std::size_t ranks) {
  std::vector<Counts> ways(6, Counts(ranks));
  for (std::size_t r = 0; r < ranks; ++r) {
    ways[0][r] = 3;
    ways[1][r] = r + 1;
    ways[2][r] = r % 2 == 0 ? 4 : 0;
    ways[3][r] = 0;
    ways[4][r] = 2100 + 37 * r;
    ways[5][r] = r % 3 == 0 ? 5 : r % 3 == 1 ? 2500 : 0;
  }
  return ways;
}

template <class T>
T expected(Reduction reduction, std::size_t ranks, std::size_t i) {
  auto result = static_cast<float>(value<T>(0, i));
  for (std::size_t r = 1; r < ranks; ++r) {
    const auto next = static_cast<float>(value<T>(r, i));
    if (reduction == Reduction::sum) result += next;
    if (reduction == Reduction::max) result = std::max(result, next);
    if (reduction == Reduction::min) result = std::min(result, next);
  }
  return T(result);
}

template <class T>
std::vector<T> reduced(Reduction reduction, std::size_t ranks, std::size_t begin, std::size_t n) {
  std::vector<T> result(n);
  for (std::size_t i = 0; i < n; ++i) result[i] = expected<T>(reduction, ranks, begin + i);
  return result;
}

template <class T, class C>
void check_reductions(C& c, const Counts& counts) {
  const auto rank = static_cast<std::size_t>(c.rank());
  const auto ranks = static_cast<std::size_t>(c.size());
  const std::size_t n = sum(counts);
  for (const Reduction op : {Reduction::sum, Reduction::max, Reduction::min}) {
    const std::vector<T> in = values<T>(rank, 0, n);
    const std::vector<T> all = reduced<T>(op, ranks, 0, n);
    std::vector<T> out(n);
    c.template all_reduce<T>(in, out, op);
    check(equal<T>(out, all), "all_reduce", c.rank(), n);
    check(equal<T>(in, values<T>(rank, 0, n)), "all_reduce leaves its input", c.rank(), n);

    std::vector<T> in_place = in;
    c.template all_reduce<T>(in_place, in_place, op);
    check(equal<T>(in_place, all), "all_reduce in place", c.rank(), n);

    std::vector<T> block(counts[rank]);
    c.template reduce_scatter<T>(in, block, counts, op);
    check(equal<T>(block, reduced<T>(op, ranks, offset(counts, rank), counts[rank])),
          "reduce_scatter", c.rank(), n);
  }
}

template <class T, class C>
void check_moves(C& c, const Counts& counts) {
  const auto rank = static_cast<std::size_t>(c.rank());
  const std::size_t n = sum(counts);
  const std::size_t begin = offset(counts, rank);
  const std::vector<T> whole = values<T>(9, 0, n);
  const std::vector<T> mine = values<T>(9, begin, counts[rank]);

  std::vector<T> out(n);
  c.template all_gather<T>(mine, out, counts);
  check(equal<T>(out, whole), "all_gather", c.rank(), n);

  std::vector<T> in_place(n);
  std::copy(mine.begin(), mine.end(), in_place.begin() + static_cast<std::ptrdiff_t>(begin));
  c.template all_gather<T>(std::span<const T>(in_place).subspan(begin, counts[rank]), in_place,
                           counts);
  check(equal<T>(in_place, whole), "all_gather in place", c.rank(), n);

  for (int root = 0; root < c.size(); ++root) {
    const bool is_root = root == c.rank();
    std::vector<T> data = is_root ? whole : std::vector<T>(n);
    c.broadcast(std::span(data), root);
    check(equal<T>(data, whole), "broadcast", c.rank(), n);

    std::vector<T> gathered(is_root ? n : 0);
    c.template gather<T>(mine, gathered, counts, root);
    if (is_root) check(equal<T>(gathered, whole), "gather", c.rank(), n);

    std::vector<T> block(counts[rank]);
    c.template scatter<T>(is_root ? std::span<const T>(whole) : std::span<const T>(), block, counts,
                          root);
    check(equal<T>(block, mine), "scatter", c.rank(), n);
  }
}

/// Rank r sends counts[(r + q) % P] elements to rank q.
template <class T, class C>
void check_all_to_all(C& c, const Counts& counts) {
  const auto rank = static_cast<std::size_t>(c.rank());
  const auto ranks = static_cast<std::size_t>(c.size());
  Counts exchanged(ranks);
  for (std::size_t q = 0; q < ranks; ++q) exchanged[q] = counts[(rank + q) % ranks];
  const std::vector<T> in = values<T>(rank, 0, sum(exchanged));
  std::vector<T> wanted;
  for (std::size_t from = 0; from < ranks; ++from) {
    Counts sent(ranks);
    for (std::size_t q = 0; q < ranks; ++q) sent[q] = counts[(from + q) % ranks];
    const std::vector<T> block = values<T>(from, offset(sent, rank), exchanged[from]);
    wanted.insert(wanted.end(), block.begin(), block.end());
  }
  std::vector<T> out(sum(exchanged));
  c.template all_to_all<T>(in, exchanged, out, exchanged);
  check(equal<T>(out, wanted), "all_to_all", c.rank(), in.size());
}

template <class T, class C>
void check_everything(C& c) {
  for (const Counts& counts : ways_to_cut(static_cast<std::size_t>(c.size()))) {
    check_reductions<T>(c, counts);
    check_moves<T>(c, counts);
    check_all_to_all<T>(c, counts);
  }
  c.barrier();
}

template <class T>
void check_all_communicators() {
  SingleRank single;
  check_everything<T>(single);
  for (const int ranks : {1, 2, 3, 4, 5, 8})
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

TEST_CASE("copies of a communicator stand for the same rank") {
  run_on_ranks(2, [](Ranks& c) {
    Ranks copy = c;
    for (int i = 0; i < 5; ++i) {
      c.barrier();
      copy.barrier();
    }
  });
}
