#pragma once
// In which order the blocks of a device combine the terms of each of many rows.

#include <algorithm>
#include <bit>
#include <cstddef>

#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// A row of n terms is combined by `lanes` threads in each of `parts` blocks: thread t of all these
/// takes terms t, t + lanes * parts, ... The lanes of a part meet in halves, and leave one result,
/// which is a term of the next round where a row has several parts.
///
/// A block has the lanes of as many rows as fit in, for one part. Neighbouring threads are lanes of
/// a row if the terms of a row are adjacent, else rows, of which a block then has 32 or more.
///
/// All of it depends on n and `adjacent` alone, and so do the bits of a result.
class RowOrder {
 public:
  /// Threads of a block.
  static constexpr unsigned threads = 256;
  /// Of a row. There is no second round behind the one that combines so many parts.
  static constexpr unsigned most_parts = 1024;

  constexpr RowOrder(std::size_t n, Adjacent adjacent)
      : n_(n),
        lanes_(lanes_for(n, adjacent == Adjacent::terms ? threads : threads / 32)),
        parts_(parts_for(n, lanes_)),
        lane_step_(adjacent == Adjacent::terms ? 1 : threads / lanes_),
        row_step_(adjacent == Adjacent::terms ? lanes_ : 1) {}

  constexpr unsigned lanes() const { return lanes_; }
  constexpr unsigned parts() const { return parts_; }
  constexpr unsigned rows_of_block() const { return threads / lanes_; }

  /// Of which of the block's rows a thread is a lane, and of which number.
  constexpr unsigned row_of(unsigned thread) const { return thread / row_step_ % rows_of_block(); }
  constexpr unsigned lane_of(unsigned thread) const { return thread / lane_step_ % lanes_; }

  /// `first` and the terms of one lane, combined.
  template <class A, class Term, class Combine>
  constexpr A of_lane(unsigned part, unsigned lane, A first, const Term& term,
                      const Combine& combine) const {
    const std::size_t step = std::size_t{lanes_} * parts_;
    A result = first;
    for (std::size_t i = std::size_t{part} * lanes_ + lane; i < n_; i += step)
      result = combine(result, static_cast<A>(term(i)));
    return result;
  }

  /// What a thread does when `half` lanes of each row meet the other half; results has a number of
  /// every thread. Beginning with lanes / 2, each call is made by all threads before the next one.
  template <class A, class Combine>
  constexpr void meet(A* results, unsigned thread, unsigned half, const Combine& combine) const {
    if (lane_of(thread) < half)
      results[thread] = combine(results[thread], results[thread + half * lane_step_]);
  }

 private:
  /// 16 terms a lane or more; a power of two.
  static constexpr unsigned lanes_for(std::size_t n, std::size_t most) {
    return static_cast<unsigned>(std::bit_floor(std::clamp<std::size_t>(n / 16, 1, most)));
  }
  /// 32 terms a lane or fewer, as long as there may be more parts.
  static constexpr unsigned parts_for(std::size_t n, std::size_t lanes) {
    return static_cast<unsigned>(
        std::clamp<std::size_t>((n + 32 * lanes - 1) / (32 * lanes), 1, most_parts));
  }

  std::size_t n_;
  unsigned lanes_;
  unsigned parts_;
  unsigned lane_step_;  // from a thread to that of the next lane
  unsigned row_step_;   // from a thread to that of the next row
};

static_assert(RowOrder(RowOrder::most_parts, Adjacent::terms).parts() == 1);

/// The results of the parts of each row, as its terms.
template <class A>
struct PartsOfRow {
  struct Term {
    const A* first;
    constexpr A operator()(std::size_t part) const { return first[part]; }
  };

  const A* results;
  unsigned parts;

  constexpr Term operator()(std::size_t r) const { return {results + r * parts}; }
};

}  // namespace shardwise::detail
