#pragma once
// The order in which the blocks of a device combine the terms of each of many rows.

#include <algorithm>
#include <bit>
#include <cstddef>

#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// A row of n terms is combined by `lanes` threads in each of `parts` blocks: thread t of all these
/// takes terms t, t + lanes * parts, ... The lanes of a part are combined by halves to one result.
/// If a row has several parts, their results are the terms of a second round.
///
/// A block has the lanes of as many rows as fit, for one part. If the terms of a row are adjacent,
/// neighbouring threads are lanes of a row; else they are rows, and a block has 32 or more rows.
///
/// All of this depends only on n and `adjacent`, and so do the bits of a result.
class RowOrder {
 public:
  /// Threads of a block.
  static constexpr unsigned threads = 256;
  /// Of a row. The round that combines this many parts is the last one.
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

  /// The row of a thread in its block, and the number of its lane.
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

  /// One step of a thread: the first `half` lanes of each row combine with the next `half`;
  /// `results` has one number for each thread. `half` begins with lanes / 2, and all threads make
  /// each call before the next one.
  template <class A, class Combine>
  constexpr void meet(A* results, unsigned thread, unsigned half, const Combine& combine) const {
    if (lane_of(thread) < half)
      results[thread] = combine(results[thread], results[thread + half * lane_step_]);
  }

 private:
  /// At least 16 terms for each lane; a power of two.
  static constexpr unsigned lanes_for(std::size_t n, std::size_t most) {
    return static_cast<unsigned>(std::bit_floor(std::clamp<std::size_t>(n / 16, 1, most)));
  }
  /// At most 32 terms for each lane, unless there are too many parts.
  static constexpr unsigned parts_for(std::size_t n, std::size_t lanes) {
    return static_cast<unsigned>(
        std::clamp<std::size_t>((n + 32 * lanes - 1) / (32 * lanes), 1, most_parts));
  }

  std::size_t n_;
  unsigned lanes_;
  unsigned parts_;
  unsigned lane_step_;  // from a thread to the one of the next lane
  unsigned row_step_;   // from a thread to the one of the next row
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
