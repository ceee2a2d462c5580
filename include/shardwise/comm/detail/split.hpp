#pragma once
// The ranks of a group made by split, and their order.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// The arguments of a rank's `split`.
struct SplitChoice {
  int color;
  int key;
};

/// The ranks of this color by key, those of equal keys by rank. `choices` is a list with the
/// SplitChoice of each rank.
template <class Choices>
std::vector<int> ranks_of_color(const Choices& choices, int color) {
  const auto key_of = [&](int rank) { return choices[static_cast<std::size_t>(rank)].key; };
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(choices.size()); ++rank) {
    if (choices[static_cast<std::size_t>(rank)].color != color) continue;
    const auto is_before = [&](int a, int b) { return key_of(a) < key_of(b); };
    ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), rank, is_before), rank);
  }
  return ranks;
}

}  // namespace shardwise::detail
