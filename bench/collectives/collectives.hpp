#pragma once
// Every collective of the communicators, with the buffers that it needs and what it must give.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/bandwidth.hpp"
#include "collectives/move.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/core/partition.hpp"

namespace bench {

/// One rank's buffers for a collective on `floats` floats, a multiple of the number of ranks, and
/// what it must find in `out`. Root is the first rank.
struct Buffers {
  shardwise::Operation operation;
  int rank, ranks;
  std::vector<std::size_t> counts;  // equal blocks
  std::vector<float> in, out;
  std::function<float(std::size_t)> exact;

  Buffers(shardwise::Operation what, shardwise::Place me, std::size_t floats)
      : operation(what),
        rank(me.rank),
        ranks(me.size),
        counts(static_cast<std::size_t>(me.size), floats / static_cast<std::size_t>(me.size)) {
    prepare(floats);
  }
  Buffers(const Buffers&) = delete;

  int next() const { return (rank + 1) % ranks; }
  int previous() const { return (rank + ranks - 1) % ranks; }

  bool is_right() const { return all_equal(out, exact); }

  Traffic traffic(std::size_t floats) const {
    const double bytes = static_cast<double>(floats * sizeof(float));
    return {bytes, least_bytes(operation, ranks, bytes), 0};
  }

 private:
  void prepare(std::size_t floats) {
    using enum shardwise::Operation;
    const std::size_t mine = counts.front(), before = mine * static_cast<std::size_t>(rank);
    const auto own = [this](std::size_t i) { return number(rank, i); };
    const auto whole = [](std::size_t i) { return number(0, i); };
    const auto block = [before](std::size_t i) { return number(0, before + i); };
    switch (operation) {
      case all_reduce:
        return set(floats, own, floats, [this](std::size_t i) { return sum_at(i); });
      case all_gather:
        return set(mine, block, floats, whole);
      case reduce_scatter:
        return set(floats, own, mine, [=, this](std::size_t i) { return sum_at(before + i); });
      case broadcast:
        set(0, own, floats, whole);
        if (rank == 0) fill(out, whole);
        return;
      case gather:
        return set(mine, block, rank == 0 ? floats : 0, whole);
      case scatter:
        return set(rank == 0 ? floats : 0, whole, mine, block);
      case all_to_all:
        return set(floats, own, floats, [=](std::size_t i) {
          return number(static_cast<int>(i / mine), before + i % mine);
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

  float sum_at(std::size_t i) const {
    float sum = 0;
    for (int other = 0; other < ranks; ++other) sum += number(other, i);
    return sum;
  }
};

/// Calls it; send stands for a ring: each rank sends to the next and receives from the previous.
template <class C>
void call(C& ranks, Buffers& b) {
  using enum shardwise::Operation;
  const std::span<const float> in(b.in);
  const std::span<float> out(b.out);
  switch (b.operation) {
    case all_reduce:
      return ranks.all_reduce(in, out);
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
std::function<Move(C&, std::size_t)> by(shardwise::Operation what, F f) {
  return [=](C& ranks, std::size_t floats) {
    const auto buffers =
        std::make_shared<Buffers>(what, shardwise::Place{ranks.rank(), ranks.size()}, floats);
    return Move{[=, &ranks] { f(ranks, *buffers); }, [=] { return buffers->is_right(); },
                buffers->traffic(floats)};
  };
}

}  // namespace bench
