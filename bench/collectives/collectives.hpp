#pragma once
// Every collective of the communicators, with the buffers that it needs and what it must give.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "collectives/bandwidth.hpp"
#include "collectives/move.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/core/partition.hpp"

namespace bench {

/// What is called; equal blocks for each rank, or blocks of which each is larger than the one
/// before.
struct Collective {
  shardwise::Operation operation;
  shardwise::Reduction reduction = shardwise::Reduction::sum;
  bool uneven = false;
};

/// `floats` in a block for each rank.
inline std::vector<std::size_t> blocks_of(std::size_t floats, std::size_t ranks, bool uneven) {
  std::vector<std::size_t> counts(ranks, floats / ranks);
  if (!uneven) return counts;
  for (std::size_t i = 0; i < ranks; ++i) counts[i] = floats * (i + 1) * 2 / (ranks * (ranks + 1));
  counts.back() += floats - std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  return counts;
}

/// One rank's buffers for a collective on `floats` floats, a multiple of the number of ranks, and
/// what it must find in `out`. Root is the first rank.
struct Buffers {
  Collective collective;
  int rank, ranks;
  std::vector<std::size_t> counts;
  std::vector<float> in, out;
  std::function<float(std::size_t)> exact;

  Buffers(const Collective& what, shardwise::Place me, std::size_t floats)
      : collective(what),
        rank(me.rank),
        ranks(me.size),
        counts(blocks_of(floats, static_cast<std::size_t>(me.size), what.uneven)) {
    prepare(floats);
  }
  Buffers(const Buffers&) = delete;

  int next() const { return (rank + 1) % ranks; }
  int previous() const { return (rank + ranks - 1) % ranks; }

  bool is_right() const { return all_equal(out, exact); }

  /// Of a gather of uneven blocks, the rank of the smallest one must receive all others.
  Traffic traffic(std::size_t floats) const {
    const double bytes = static_cast<double>(floats * sizeof(float));
    if (!collective.uneven) return {bytes, least_bytes(collective.operation, ranks, bytes), 0};
    const std::size_t smallest = *std::min_element(counts.begin(), counts.end());
    return {bytes, static_cast<double>((floats - smallest) * sizeof(float)), 0};
  }

 private:
  void prepare(std::size_t floats) {
    using enum shardwise::Operation;
    const auto mine = counts.begin() + rank;
    const std::size_t before = std::accumulate(counts.begin(), mine, std::size_t{0});
    const auto own = [this](std::size_t i) { return number(rank, i); };
    const auto whole = [](std::size_t i) { return number(0, i); };
    const auto block = [before](std::size_t i) { return number(0, before + i); };
    switch (collective.operation) {
      case all_reduce:
        return set(floats, own, floats, [this](std::size_t i) { return reduced(i); });
      case all_gather:
        return set(*mine, block, floats, whole);
      case reduce_scatter:
        return set(floats, own, *mine, [=, this](std::size_t i) { return reduced(before + i); });
      case broadcast:
        set(0, own, floats, whole);
        if (rank == 0) fill(out, whole);
        return;
      case gather:
        return set(*mine, block, rank == 0 ? floats : 0, whole);
      case scatter:
        return set(rank == 0 ? floats : 0, whole, *mine, block);
      case all_to_all:  // the blocks are equal
        return set(floats, own, floats, [=, n = *mine](std::size_t i) {
          return number(static_cast<int>(i / n), before + i % n);
        });
      case send:
        return set(floats, own, floats, [this](std::size_t i) { return number(previous(), i); });
      default:
        return;
    }
  }

  template <class F>
  static void fill(std::vector<float>& values, F f) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = f(i);
  }

  template <class In, class Out>
  void set(std::size_t in_size, In input, std::size_t out_size, Out result) {
    in.resize(in_size);
    fill(in, input);
    out.assign(out_size, nothing);
    exact = result;
  }

  float reduced(std::size_t i) const {
    float result = number(0, i);
    for (int other = 1; other < ranks; ++other) {
      const float term = number(other, i);
      result = collective.reduction == shardwise::Reduction::max ? std::max(result, term)
                                                                 : result + term;
    }
    return result;
  }
};

/// Calls it; send stands for a ring: each rank sends to the next and receives from the previous.
template <class C>
void call(C& ranks, Buffers& b) {
  using enum shardwise::Operation;
  const std::span<const float> in(b.in);
  const std::span<float> out(b.out);
  switch (b.collective.operation) {
    case all_reduce:
      return ranks.all_reduce(in, out, b.collective.reduction);
    case all_gather:
      return ranks.all_gather(in, out, b.counts);
    case reduce_scatter:
      return ranks.reduce_scatter(in, out, b.counts);
    case broadcast:
      return ranks.broadcast(out, 0);
    case gather:
      return ranks.gather(in, out, b.counts, 0);
    case scatter:
      return ranks.scatter(in, out, b.counts, 0);
    case all_to_all:
      return ranks.all_to_all(in, b.counts, out, b.counts);
    case send:
      ranks.send(in, b.next());
      return ranks.receive(out, b.previous());
    default:
      return ranks.barrier();
  }
}

/// The collective by `f(ranks, buffers)`: the communicator's own, or one by hand.
template <class C, class F>
std::function<Move(C&, std::size_t)> by(const Collective& what, F f) {
  return [=](C& ranks, std::size_t floats) {
    const auto buffers =
        std::make_shared<Buffers>(what, shardwise::Place{ranks.rank(), ranks.size()}, floats);
    return Move{[=, &ranks] { f(ranks, *buffers); }, [=] { return buffers->is_right(); },
                buffers->traffic(floats)};
  };
}

}  // namespace bench
