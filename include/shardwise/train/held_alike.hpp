#pragma once
// Drift: whether ranks still hold the same numbers where all must hold the same.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/comm/detail/ranks_text.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/train/given_alike.hpp"

namespace shardwise {

namespace detail {

/// Of each tensor that all ranks hold alike, its name and its fingerprint on this rank.
struct HeldAlike {
  std::vector<std::string> names;
  std::vector<std::int64_t> marks;
};

template <class M>
HeldAlike held_alike(M& model) {
  HeldAlike held;
  const auto add = [&](const auto& tensor) {
    if constexpr (GivenWhole<std::remove_cvref_t<decltype(tensor.value)>>) {
      held.names.push_back(tensor.name);
      held.marks.push_back(fingerprint(model.run(), tensor.value));
    }
  };
  model.visit_parameters(add);
  model.visit_buffers(add);
  return held;
}

/// The tensors whose fingerprints differ between ranks, by their numbers. A collective.
template <AgreeingRanks R>
std::vector<std::size_t> drifted(R& ranks, const std::vector<std::int64_t>& marks) {
  const std::size_t count = marks.size();
  std::vector<std::int64_t> largest(marks);  // then of each mark negated: minus the smallest
  for (const std::int64_t mark : marks) largest.push_back(-mark);
  ranks.all_reduce(std::span<const std::int64_t>(largest), std::span(largest), Reduction::max);
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < count; ++i)
    if (largest[i] != -largest[count + i]) some.push_back(i);
  return some;
}

/// The ranks whose fingerprint is not that of more than half of the ranks; all ranks if there is no
/// such fingerprint.
inline std::string other_ranks(std::span<const std::int64_t> of_ranks) {
  const auto count = [&](std::int64_t mark) {
    return std::count(of_ranks.begin(), of_ranks.end(), mark);
  };
  const std::int64_t usual =
      *std::max_element(of_ranks.begin(), of_ranks.end(),
                        [&](std::int64_t a, std::int64_t b) { return count(a) < count(b); });
  const bool is_of_most = 2 * count(usual) > static_cast<std::ptrdiff_t>(of_ranks.size());
  std::vector<int> others;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
    if (!is_of_most || of_ranks[rank] != usual) others.push_back(static_cast<int>(rank));
  return ranks_text(others);
}

}  // namespace detail

/// Compares, bit by bit through a fingerprint, the parameters and the buffers of layers that all
/// ranks hold alike (`Invariant`), and so finds a rank whose numbers have drifted away from those
/// of the others: by another processor or library, a fault in its memory, or a program that changed
/// them on some ranks. Call it between two steps, every N of them. What an optimizer keeps is not
/// compared; if it differs, parameters differ after the next step. A collective.
/// sends    an all-reduce of two int64 for each of these tensors; if some differ, one of one int64
///          for each of the first 8 and each rank
/// throws   collective_error on every rank, with the tensors and the ranks that differ from most
template <class M>
void compare_held(M& model) {
  const detail::HeldAlike held = detail::held_alike(model);
  HostRanks ranks(model.run());
  const auto size = static_cast<std::size_t>(ranks.size());
  if (size == 1 || held.marks.empty()) return;
  std::vector<std::size_t> some = detail::drifted(ranks, held.marks);
  if (some.empty()) return;
  const std::size_t count = some.size();
  some.resize(std::min<std::size_t>(count, 8));
  std::vector<std::int64_t> all(some.size() * size);  // of each tensor those of all ranks
  for (std::size_t i = 0; i < some.size(); ++i)
    all[i * size + static_cast<std::size_t>(ranks.rank())] = held.marks[some[i]];
  ranks.all_reduce(std::span<const std::int64_t>(all), std::span(all), Reduction::sum);
  std::string text;
  for (std::size_t i = 0; i < some.size(); ++i) {
    text += detail::sentence({text.empty() ? "" : "; ", held.names[some[i]], " of ",
                              detail::other_ranks(std::span(all).subspan(i * size, size))});
  }
  if (count > some.size()) text += detail::sentence({" and ", count - some.size(), " more"});
  throw collective_error(
      {"before step ", model.step(),
       " ranks hold other numbers of what all must hold alike: ", text,
       ". Their results are wrong from now on: load the last checkpoint on all ranks, and look at "
       "the machines of the ranks named here"});
}

}  // namespace shardwise
