#pragma once
// One bare call of a program of trials, with values that tell the step, the rank and the element,
// and the check of its results.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/dtype.hpp"
#include "trials/program.hpp"

namespace trials {

struct WrongResult {};

inline void expect(bool right) {
  if (!right) throw WrongResult();
}

/// A collective with data, or a message, of one rank of a group.
template <shardwise::Communicator C>
struct BareCall {
  C& ranks;
  int world_rank;
  const Members& members;
  std::size_t number;  ///< of the step
  const Step& step;

  void make() const {
    using shardwise::Dtype;
    switch (step.dtype) {
      case Dtype::float32:
        return make_of<float>();
      case Dtype::float64:
        return make_of<double>();
      case Dtype::bfloat16:
        return make_of<shardwise::bf16>();
      case Dtype::float16:
        return make_of<shardwise::fp16>();
      case Dtype::int32:
        return make_of<std::int32_t>();
      case Dtype::int64:
        return make_of<std::int64_t>();
      case Dtype::uint8:
        return make_of<std::uint8_t>();
    }
  }

  /// What element `i` of rank `rank` is before step `number`: exact in all dtypes, sums too.
  int value(int rank, std::size_t i) const {
    return static_cast<int>((static_cast<std::size_t>(rank) * 3 + number * 5 + i) % 11);
  }

  /// What element `i` of all ranks becomes.
  int reduced(std::size_t i) const {
    int all = value(members[0], i);
    for (std::size_t m = 1; m < members.size(); ++m) {
      const int one = value(members[m], i);
      all = step.reduction == shardwise::Reduction::sum   ? all + one
            : step.reduction == shardwise::Reduction::max ? std::max(all, one)
                                                          : std::min(all, one);
    }
    return all;
  }

  template <class T>
  std::vector<T> values(std::size_t n) const {
    std::vector<T> all(n);
    for (std::size_t i = 0; i < n; ++i)
      all[i] = static_cast<T>(static_cast<float>(value(world_rank, i)));
    return all;
  }

  /// `wanted(i)` is what element `i` must be.
  template <class T, class Wanted>
  static void expect_all(const std::vector<T>& values, const Wanted& wanted) {
    for (std::size_t i = 0; i < values.size(); ++i)
      expect(static_cast<float>(values[i]) == static_cast<float>(wanted(i)));
  }

  /// One collective, or a message to the next rank and one from the rank before.
  template <class T>
  void make_of() const {
    const std::size_t size = members.size();
    const auto me = static_cast<std::size_t>(ranks.rank());
    const Counts counts = step.counts(size);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const auto root = static_cast<int>(step.root % size);
    const bool is_root = ranks.rank() == root;
    const auto offset = [&](std::size_t block) {
      return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(block),
                             std::size_t{0});
    };
    const auto sum_of = [&](std::size_t i) { return reduced(i); };
    /// Of all blocks one after the other.
    const auto gathered = [&](std::size_t i) {
      std::size_t block = 0;
      while (i >= counts[block]) i -= counts[block++];
      return value(members[block], i);
    };
    switch (step.act) {
      case Act::all_reduce: {
        std::vector<T> data = values<T>(step.elements);
        ranks.template all_reduce<T>(data, data, step.reduction);
        return expect_all(data, sum_of);
      }
      case Act::all_gather: {
        const std::vector<T> in = values<T>(counts[me]);
        std::vector<T> out(total);
        ranks.template all_gather<T>(in, out, counts);
        return expect_all(out, gathered);
      }
      case Act::reduce_scatter: {
        const std::vector<T> in = values<T>(total);
        std::vector<T> out(counts[me]);
        ranks.template reduce_scatter<T>(in, out, counts, step.reduction);
        return expect_all(out, [&](std::size_t i) { return sum_of(offset(me) + i); });
      }
      case Act::broadcast: {
        std::vector<T> data = values<T>(step.elements);
        ranks.broadcast(std::span(data), root);
        return expect_all(
            data, [&](std::size_t i) { return value(members[static_cast<std::size_t>(root)], i); });
      }
      case Act::gather: {
        const std::vector<T> in = values<T>(counts[me]);
        std::vector<T> out(is_root ? total : 0);
        ranks.template gather<T>(in, out, counts, root);
        return expect_all(out, gathered);
      }
      case Act::scatter: {
        const std::vector<T> in = values<T>(is_root ? total : 0);
        std::vector<T> out(counts[me]);
        ranks.template scatter<T>(in, out, counts, root);
        return expect_all(out, [&](std::size_t i) {
          return value(members[static_cast<std::size_t>(root)], offset(me) + i);
        });
      }
      case Act::all_to_all:
        return all_to_all<T>();
      default: {
        if (size == 1) return;
        const auto next = static_cast<int>((me + 1) % size);
        const auto before = (me + size - 1) % size;
        const std::vector<T> out = values<T>(step.elements);
        std::vector<T> in(step.elements);
        const bool begins = me == 0;  // a send may wait for its receiver
        if (begins) ranks.send(std::span<const T>(out), next, static_cast<int>(number));
        ranks.receive(std::span(in), static_cast<int>(before), static_cast<int>(number));
        if (!begins) ranks.send(std::span<const T>(out), next, static_cast<int>(number));
        return expect_all(in, [&](std::size_t i) { return value(members[before], i); });
      }
    }
  }

  /// Block r of rank q is as long as block q of rank r.
  template <class T>
  void all_to_all() const {
    const std::size_t size = members.size();
    const auto me = static_cast<std::size_t>(ranks.rank());
    const auto blocks_of = [&](std::size_t member) {
      Counts counts(size);
      for (std::size_t r = 0; r < size; ++r) counts[r] = step.block(member + r);
      return counts;
    };
    const Counts received = blocks_of(me);
    const Counts sent = step.moved(received);
    const std::size_t total = std::accumulate(sent.begin(), sent.end(), std::size_t{0});
    const std::vector<T> in = values<T>(total);
    std::vector<T> out(total);
    ranks.template all_to_all<T>(in, sent, out, received);
    if (step.moves_count) return;
    std::size_t at = 0;
    for (std::size_t r = 0; r < size; ++r) {
      const Counts theirs = blocks_of(r);
      const std::size_t offset = std::accumulate(
          theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
      for (std::size_t i = 0; i < received[r]; ++i, ++at)
        expect(static_cast<float>(out[at]) == static_cast<float>(value(members[r], offset + i)));
    }
  }
};

}  // namespace trials
