#pragma once
// The error for ranks that were given different values where all must be given the same.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/comm/detail/ranks_text.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// `all` has the value of each rank, `what` names it.
/// throws  the same on all ranks: collective_error if they differ
template <class T>
void require_agreed(const std::vector<T>& all, std::string_view what) {
  const auto groups =
      groups_of_equal(all.size(), [&](std::size_t q, std::size_t r) { return all[q] == all[r]; });
  if (groups.size() == 1) return;
  std::string text;
  for (const SomeRanks& group : groups)
    append(text, {text.empty() ? "" : ", ", ranks_text(group),
                  group.size() == 1 ? " has " : " have ", all[group[0]]});
  throw collective_error({"ranks disagree on ", what, ": ", text, "; give all ranks the same one"});
}

}  // namespace shardwise::detail
