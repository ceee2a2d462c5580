#pragma once
// What threads.cpp and processes.cpp compare, on whatever ranks they have.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/move.hpp"
#include "collectives/redistributions.hpp"
#include "collectives/sizes.hpp"
#include "support/program.hpp"

namespace bench {

template <class C>
struct Comparison {
  std::string name;
  std::vector<Way<C>> ways;  // ours last
  bool has_sizes = true;
};

/// Ways to a collective besides the communicator's.
template <class C>
using ByHand = std::function<std::vector<Way<C>>(sw::Operation)>;

/// Of `ranks` ranks; ours is called as the ranks are.
template <class C>
class Comparisons {
 public:
  Comparisons(std::string ours, int ranks, ByHand<C> by_hand)
      : ours_(std::move(ours)), by_hand_(std::move(by_hand)) {
    using enum sw::Operation;
    add("all_reduce", all_reduce);
    add("all_gather", all_gather);
    add("reduce_scatter", reduce_scatter);
    add("broadcast", broadcast);
    add("gather", gather);
    add("scatter", scatter);
    add("all_to_all", all_to_all);
    if (ranks > 1) add("send and receive", send);
    add("barrier", barrier);
    all_.back().has_sizes = false;
    add_redistributions();
  }

  const std::vector<Comparison<C>>& all() const { return all_; }

 private:
  void add(const std::string& name, sw::Operation what) {
    std::vector<Way<C>> ways = by_hand_ ? by_hand_(what) : std::vector<Way<C>>{};
    ways.push_back({ours_, by<C>(what, call<C>)});
    all_.push_back({name, std::move(ways)});
  }

  /// Blocks of rows lie end to end, those of columns do not. To and from Replicated runs the same
  /// as to and from Invariant.
  void add_redistributions() {
    using Rows = sw::Sharded<sw::Axis::batch>;
    using Columns = sw::Sharded<sw::Axis::feature>;
    add<sw::Partial, sw::Invariant>("Partial -> Invariant", matrix);
    add<sw::Partial, Rows>("Partial -> rows", matrix);
    add<sw::Partial, Columns>("Partial -> columns", matrix);
    add<Rows, sw::Invariant>("rows -> Invariant", matrix);
    add<Columns, sw::Invariant>("columns -> Invariant", matrix);
    add<Rows, Columns>("rows -> columns", matrix);
    add<Columns, Rows>("columns -> rows", matrix);

    add<Height, Haloed>("height -> halo of 3x3", images);
    add<HaloedPartial, Height>("summands of a halo -> height", images);
    add<HaloedPartial, sw::Invariant>("summands of a halo -> Invariant", images);
  }

  template <class From, class To>
  void add(const std::string& name, ShapeOf shape) {
    all_.push_back({name, {{ours_, redistribution<From, To, C>(shape)}}});
  }

  std::string ours_;
  ByHand<C> by_hand_;
  std::vector<Comparison<C>> all_;
};

/// So many floats as blocks for each rank can have together: at least one each.
inline std::size_t floats_of(std::size_t bytes, int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  return std::max<std::size_t>(1, bytes / sizeof(float) / p) * p;
}

/// All of them. `on_ranks(f)` calls f(communicator) on all ranks and gives what it gave the first.
template <class C, class OnRanks>
void add_to(Program& program, const Comparisons<C>& comparisons, int ranks, OnRanks on_ranks) {
  for (const Comparison<C>& one : comparisons.all()) {
    const auto add = [&, ways = one.ways](const std::string& name, std::size_t floats) {
      program.add(name, [=, rounds = program.rounds()] {
        return on_ranks([&](C& all) { return compare(all, ways, floats, rounds); });
      });
    };
    if (!one.has_sizes) add(one.name, 0);
    for (const std::size_t bytes : program.sizes(sizes_in_bytes(), quick_size))
      if (one.has_sizes) add(one.name + ", " + size_name(bytes), floats_of(bytes, ranks));
  }
}

}  // namespace bench
