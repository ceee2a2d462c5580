#pragma once
// The errors for ranks that were given different values where all must be given the same.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/detail/equal_groups.hpp"
#include "shardwise/comm/detail/ranks_text.hpp"
#include "shardwise/comm/detail/unlike_options.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/comm/given_options.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/growing_list.hpp"
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

/// Throws collective_error on all ranks, which were given different options, with the values of
/// those that differ; `what` names them all. A collective.
template <Communicator C>
[[noreturn, gnu::cold]] void refuse_unlike(C& ranks, std::string_view what,
                                           const OptionsText& options) {
  const auto all = gathered(ranks, options);
  const auto numbers = gathered(ranks, ranks.rank());
  GrowingList<const OptionsText*> each;
  for (const OptionsText& one : all) each.add(&one);
  const std::string unlike = text_of_unlike(each, numbers);
  throw collective_error({"ranks disagree on ", what, ": ",
                          unlike.empty() ? std::string_view("what differs is too long for this "
                                                            "message")
                                         : std::string_view(unlike),
                          "; give all ranks the same"});
}

/// Does that if their hashes differ. A collective.
template <Communicator C>
void require_agreed(C& ranks, std::string_view what, const GivenOptions& options) {
  for (const std::uint32_t hash : gathered(ranks, options.hash()))
    if (hash != options.hash()) refuse_unlike(ranks, what, OptionsText(options));
}

}  // namespace shardwise::detail
