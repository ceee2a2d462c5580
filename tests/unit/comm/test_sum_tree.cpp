// The tree of sums and the rounds of a gather, played at many numbers of ranks: who adds what once,
// in which order, and in how many messages.

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "shardwise/comm/detail/sum_tree.hpp"

using shardwise::detail::BlockRange;
using shardwise::detail::for_each_skip;
using shardwise::detail::SkipRound;
using shardwise::detail::SumRound;
using shardwise::detail::SumTree;

namespace {

/// "(0+2)" for the sum of the values of ranks 0 and 2; terms[rank][block].
using Terms = std::vector<std::vector<std::string>>;

void add(std::string& left, const std::string& right) { left = "(" + left + "+" + right + ")"; }

/// What each rank holds of each block after all rounds of the tree. A rank has the round that its
/// partner has, and is sent what it receives.
Terms sums_of(int ranks) {
  const SumTree tree(ranks);
  const auto size = static_cast<std::size_t>(ranks);
  Terms terms(size);
  for (std::size_t r = 0; r < size; ++r) terms[r].assign(size, std::to_string(r));
  for (int number = 0; number < tree.rounds(); ++number) {
    const Terms before = terms;
    for (int rank = 0; rank < ranks; ++rank) {
      const SumRound round = tree.round(rank, number);
      if (round.partner < 0) continue;
      const SumRound other = tree.round(round.partner, number);
      if (other.partner != rank || other.sent != round.received) return {};
      const auto partner = static_cast<std::size_t>(round.partner);
      for (int b = round.received.begin; b < round.received.end; ++b) {
        const auto block = static_cast<std::size_t>(b);
        std::string& mine = terms[static_cast<std::size_t>(rank)][block];
        const std::string& theirs = before[partner][block];
        if (round.is_the_sum)
          mine = theirs;
        else if (round.partner_first)
          mine = "(" + theirs + "+" + mine + ")";
        else
          add(mine, theirs);
      }
    }
  }
  return terms;
}

/// The tree that the comment of SumTree describes, by halving a list of terms.
std::string expected_sum(int ranks) {
  const int places = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  std::vector<std::string> terms;
  for (int rank = 0; rank < ranks; ++rank) {
    terms.push_back(std::to_string(rank));
    if (rank >= 2 * (ranks - places)) continue;
    add(terms.back(), std::to_string(++rank));
  }
  while (terms.size() > 1) {
    const std::size_t half = terms.size() / 2;
    for (std::size_t i = 0; i < half; ++i) add(terms[i], terms[half + i]);
    terms.resize(half);
  }
  return terms.front();
}

}  // namespace

TEST_CASE("every block is the same tree over all ranks, at every number of ranks") {
  for (int ranks = 1; ranks <= 70; ++ranks) {
    CAPTURE(ranks);
    const Terms terms = sums_of(ranks);
    const std::string expected = expected_sum(ranks);
    bool is_right = terms.size() == static_cast<std::size_t>(ranks);
    for (std::size_t r = 0; r < terms.size(); ++r) is_right &= terms[r][r] == expected;
    CHECK(is_right);
  }
  CHECK(expected_sum(6) == "(((0+1)+4)+((2+3)+5))");
}

TEST_CASE("a place keeps a half of what it kept before, and its partner the other half") {
  for (const int ranks : {2, 3, 17, 24, 64, 100}) {
    CAPTURE(ranks);
    const SumTree tree(ranks);
    for (int place = 0; place < tree.places(); ++place) {
      CHECK(tree.place_of(tree.rank_at(place)) == place);
      BlockRange before{0, ranks};
      for (int distance = tree.places() / 2; distance > 0; distance /= 2) {
        const BlockRange low = tree.kept(place & ~distance, distance);
        const BlockRange high = tree.kept(place | distance, distance);
        CHECK(low.begin == before.begin);
        CHECK(low.end == high.begin);
        CHECK(high.end == before.end);
        before = tree.kept(place, distance);
      }
      CHECK(before.begin == tree.rank_at(place));
    }
  }
}

TEST_CASE("in ceil(log2 P) rounds a gather brings every block once") {
  for (int ranks = 1; ranks <= 130; ++ranks) {
    CAPTURE(ranks);
    const auto size = static_cast<std::size_t>(ranks);
    bool is_right = true;
    std::vector<std::vector<SkipRound>> rounds(size);
    for (int rank = 0; rank < ranks; ++rank)
      for_each_skip(rank, ranks, [&](const SkipRound& round) {
        rounds[static_cast<std::size_t>(rank)].push_back(round);
      });
    std::vector<std::set<int>> held(size);
    for (int rank = 0; rank < ranks; ++rank) held[static_cast<std::size_t>(rank)].insert(rank);
    for (std::size_t i = 0; i < rounds[0].size(); ++i) {
      const auto before = held;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto [to, from, count] = rounds[static_cast<std::size_t>(rank)][i];
        const auto sender = static_cast<std::size_t>(from);
        is_right &= rounds[sender][i].to == rank && rounds[sender][i].count == count;
        for (int k = 0; k < count; ++k) {
          const int block = (from + k) % ranks;
          is_right &= before[sender].contains(block);
          is_right &= held[static_cast<std::size_t>(rank)].insert(block).second;
        }
      }
    }
    for (const std::set<int>& blocks : held) is_right &= blocks.size() == size;
    CHECK(is_right);
    CHECK(rounds[0].size() == static_cast<std::size_t>(std::bit_width(size - 1)));
  }
}
