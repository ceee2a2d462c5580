#pragma once
// How a message names ranks.

#include <cstddef>
#include <string>

#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// "rank 1", "ranks 0, 2". `ranks` is a list of numbers.
template <class Ranks>
[[gnu::cold]] std::string ranks_text(const Ranks& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) append(text, {i == 0 ? "" : ", ", ranks[i]});
  return text;
}

}  // namespace shardwise::detail
