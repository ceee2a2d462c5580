#pragma once
// What every collective of a communicator gives by its contract, for each way to cut, in place too.
// Values are small integers, so that every comparison is exact.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/moves.hpp"

namespace comm_test {

using shardwise::BeginsCollectives;
using shardwise::Reduction;
namespace moves = shardwise::moves;

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
inline void check(bool right, const char* what, int rank, std::size_t elements) {
  CAPTURE(what);
  CAPTURE(rank);
  CAPTURE(elements);
  CHECK(right);
}

inline std::size_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

inline std::size_t offset(const Counts& counts, std::size_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::size_t{0});
}

/// Ways to cut: even, uneven, some empty, all empty, too large to be copied, some of each.
inline std::vector<Counts> ways_to_cut(std::size_t ranks) {
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

/// Several that are begun, of which one is no sum, and end in another order; counts are gone by
/// then.
template <class T, class C>
void check_begun(C& c, const Counts& counts) {
  const auto rank = static_cast<std::size_t>(c.rank());
  const auto ranks = static_cast<std::size_t>(c.size());
  const std::size_t n = sum(counts), begin = offset(counts, rank);
  const std::vector<T> in = values<T>(rank, 0, n);
  const std::vector<T> all = reduced<T>(Reduction::sum, ranks, 0, n);
  const std::vector<T> largest = reduced<T>(Reduction::max, ranks, 0, n);
  const std::vector<T> mine = values<T>(rank, begin, counts[rank]);
  std::vector<T> whole(n), in_place = in, block(counts[rank]), gathered(n);
  Counts given = counts;
  auto first = c.template begin_reduce_scatter<T>(in, block, given);
  auto second = c.template begin_all_gather<T>(mine, gathered, given);
  auto third = c.template begin_all_reduce<T>(in, whole, Reduction::max);
  auto fourth = c.template begin_all_reduce<T>(in_place, in_place);
  std::fill(given.begin(), given.end(), std::size_t{7});
  for (int i = 0; i < 3; ++i) first.progress();
  third.finish();
  first.finish();
  second.finish();
  fourth.finish();
  if constexpr (requires { c.wait(); }) c.wait();  // for the device
  std::vector<T> blocks;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::vector<T> one = values<T>(r, offset(counts, r), counts[r]);
    blocks.insert(blocks.end(), one.begin(), one.end());
  }
  const bool scattered = equal<T>(block, reduced<T>(Reduction::sum, ranks, begin, counts[rank]));
  check(scattered, "reduce_scatter that was begun", c.rank(), n);
  check(equal<T>(gathered, blocks), "all_gather that was begun", c.rank(), n);
  check(equal<T>(whole, largest), "all_reduce that was begun", c.rank(), n);
  check(equal<T>(in_place, all), "all_reduce that was begun in place", c.rank(), n);
}

template <class T, class C>
void check_everything(C& c) {
  for (const Counts& counts : ways_to_cut(static_cast<std::size_t>(c.size()))) {
    check_reductions<T>(c, counts);
    check_moves<T>(c, counts);
    check_all_to_all<T>(c, counts);
    if constexpr (BeginsCollectives<C>) check_begun<T>(c, counts);
  }
  c.barrier();
}

}  // namespace comm_test
