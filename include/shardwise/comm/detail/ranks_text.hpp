#pragma once
// How a message names ranks.

#include <cstddef>
#include <string>

#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// "rank 1", "ranks 0, 2", "ranks 0 to 4, 6": of `ranks`, a list of numbers, four and more that
/// follow each other are a range.
template <class Ranks>
[[gnu::cold]] std::string ranks_text(const Ranks& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    append(text, {i == 0 ? "" : ", ", ranks[i]});
    if (last < i + 3) continue;
    append(text, {" to ", ranks[last]});
    i = last;
  }
  return text;
}

}  // namespace shardwise::detail
