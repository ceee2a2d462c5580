#pragma once
// The tree by which many ranks add up, and the ring of skips by which they gather: who sends which
// blocks to whom. Both depend on the number of ranks alone.

#include <algorithm>
#include <bit>
#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// In groups of up to so many ranks each sends to each other, and one rank adds in rank order.
inline constexpr int direct_ranks = 16;

/// Bytes of the largest all_reduce in which each rank of such a group sends its whole input to all
/// others.
inline constexpr std::size_t gathered_bytes = 4096;

/// The blocks of ranks `begin` to `end` - 1.
struct BlockRange {
  int begin = 0;
  int end = 0;

  friend constexpr bool operator==(const BlockRange&, const BlockRange&) = default;
};

/// One round of a rank in a sum: it sends what it has of the sums of some blocks, and receives the
/// same of others.
struct SumRound {
  int partner = -1;            ///< the other rank; -1 if this one rests
  BlockRange sent{};           ///< blocks that it sends
  BlockRange received{};       ///< blocks that it receives
  bool is_the_sum = false;     ///< whether what it receives is the sum, and is not added to its own
  bool partner_first = false;  ///< whether the partner's operand is the left one

  friend constexpr bool operator==(const SumRound&, const SumRound&) = default;
};

/// A reduction of P ranks, and of their blocks, by recursive halving (Thakur, Rabenseifner and
/// Gropp 2005, section 4.4). The ranks stand at `places()` places, the largest power of two that is
/// not above P: of the first 2 (P - places()) ranks two neighbours share a place. First the second
/// of such two sends all its values to the first. Then in each round the ranks at two places, whose
/// distance is half of that of the round before, exchange the half of their sums that the other
/// keeps. The operand of the lower place is the left one, so all elements are added in one order:
/// that of a binary tree.
class SumTree {
 public:
  constexpr explicit SumTree(int ranks)
      : places_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        shared_(ranks - places_) {}

  constexpr int places() const { return places_; }
  constexpr int place_of(int rank) const { return rank < 2 * shared_ ? rank / 2 : rank - shared_; }
  /// The rank that adds at this place; for `places()` the number of ranks.
  constexpr int rank_at(int place) const { return place < shared_ ? 2 * place : place + shared_; }
  constexpr bool shares_place(int rank) const { return rank < 2 * shared_; }
  /// Whether the rank before it adds for it.
  constexpr bool is_second(int rank) const { return shares_place(rank) && rank % 2 == 1; }

  /// The blocks whose sums a place keeps after it has exchanged with the one at this distance.
  constexpr BlockRange kept(int place, int distance) const {
    const int first = place / distance * distance;
    return {rank_at(first), rank_at(first + distance)};
  }

  /// In the first round those that share a place add, in the last one the second gets its sums.
  constexpr int rounds() const { return 2 + std::countr_zero(static_cast<unsigned>(places_)); }
  constexpr SumRound round(int rank, int number) const {
    const bool is_last = number + 1 == rounds();
    if (number == 0 || is_last) {
      if (!shares_place(rank)) return {};
      const int second = rank | 1, partner = rank ^ 1;
      const BlockRange blocks = is_last ? BlockRange{second, second + 1} : BlockRange{0, ranks()};
      const bool sends = is_second(rank) != is_last;
      return {partner, sends ? blocks : BlockRange{}, sends ? BlockRange{} : blocks, is_last,
              false};
    }
    if (is_second(rank)) return {};
    const int distance = places_ >> number, place = place_of(rank), partner = place ^ distance;
    return {rank_at(partner), kept(partner, distance), kept(place, distance), false,
            partner < place};
  }

 private:
  constexpr int ranks() const { return places_ + shared_; }

  int places_;
  int shared_;
};

/// One round of a rank in a gather from all to all (Bruck et al. 1997): it sends the blocks of
/// `count` ranks from its own on to the rank `to`, and receives those from rank `from` on.
struct SkipRound {
  int to = 0;
  int from = 0;
  int count = 0;
};

/// The number of rounds, ceil(log2 P). After round k a rank has heard of 2^(k + 1) ranks, or of
/// all.
constexpr int skip_rounds(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1U));
}
constexpr SkipRound skip_round(int rank, int ranks, int number) {
  const int skip = 1 << number;
  return {(rank + ranks - skip) % ranks, (rank + skip) % ranks, std::min(skip, ranks - skip)};
}

/// Calls f(SkipRound) for each round.
template <class F>
constexpr void for_each_skip(int rank, int ranks, F f) {
  for (int number = 0; number < skip_rounds(ranks); ++number) f(skip_round(rank, ranks, number));
}

}  // namespace shardwise::detail
