#pragma once
// Drift: whether ranks still hold the same numbers where all must hold the same.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
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

/// Of each shard that several ranks hold alike, the name of its tensor and its fingerprint, or
/// `not_held` on a rank that does not hold it. A tensor that all ranks hold whole is one shard.
struct HeldAlike {
  static constexpr std::int64_t not_held = -1;

  std::vector<std::string> names;
  std::vector<std::int64_t> marks;
};

/// The shard of a tensor that this rank holds, and the number of shards; no shard if no other rank
/// holds it. On a mesh, ranks at one place along `tensor` hold the same one.
template <class Held, class Context>
Place shard_held(const Run<Context>& run) {
  if constexpr (GivenWhole<Held>) return {};
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const Place along_tensor = run.all_ranks.place()[MeshAxis::tensor];
    if (along_tensor.size < run.all_ranks.size()) return along_tensor;
  }
  return {.rank = 0, .size = 0};
}

template <class M>
HeldAlike held_alike(M& model) {
  HeldAlike held;
  const auto add = [&](const auto& tensor) {
    const Place shard = shard_held<std::remove_cvref_t<decltype(tensor.value)>>(model.run());
    for (int k = 0; k < shard.size; ++k) {
      held.names.push_back(tensor.name);
      held.marks.push_back(k == shard.rank ? fingerprint_of_held(model.run(), tensor.value)
                                           : HeldAlike::not_held);
    }
  };
  model.visit_parameters(add);
  model.visit_buffers(add);
  return held;
}

/// The shards whose fingerprints differ between the ranks that hold them, by their numbers. A
/// collective.
template <AgreeingRanks R>
std::vector<std::size_t> drifted(R& ranks, const std::vector<std::int64_t>& marks) {
  const std::size_t count = marks.size();
  std::vector<std::int64_t> largest(marks);  // then of each mark negated: minus the smallest
  for (const std::int64_t mark : marks)
    largest.push_back(mark == HeldAlike::not_held ? std::numeric_limits<std::int64_t>::min()
                                                  : -mark);
  ranks.all_reduce(std::span<const std::int64_t>(largest), std::span(largest), Reduction::max);
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < count; ++i)
    if (largest[i] != -largest[count + i]) some.push_back(i);
  return some;
}

/// Of the ranks that hold a shard, those whose fingerprint is not that of more than half of them;
/// all of them if there is no such fingerprint.
inline std::string other_ranks(std::span<const std::int64_t> of_ranks) {
  const auto count = [&](std::int64_t mark) {
    return mark == HeldAlike::not_held ? 0 : std::count(of_ranks.begin(), of_ranks.end(), mark);
  };
  const std::int64_t usual =
      *std::max_element(of_ranks.begin(), of_ranks.end(),
                        [&](std::int64_t a, std::int64_t b) { return count(a) < count(b); });
  std::vector<int> holders, others;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (of_ranks[rank] == HeldAlike::not_held) continue;
    holders.push_back(static_cast<int>(rank));
    if (of_ranks[rank] != usual) others.push_back(static_cast<int>(rank));
  }
  return ranks_text(2 * others.size() < holders.size() ? others : holders);
}

}  // namespace detail

/// Compares, bit by bit through a fingerprint, the parameters and the buffers of layers that
/// several ranks hold alike, and so finds a rank whose numbers have drifted away from those of the
/// others. All ranks hold alike what is `Invariant`; on a mesh, ranks that differ only along axes
/// of samples hold the same shards of the rest. Numbers drift by another processor or library, a
/// fault in its memory, or a program that changed them on some ranks. Call it between two steps,
/// every N of them. What an optimizer keeps is not compared; if it differs, parameters differ after
/// the next step. A collective; for the model of one stage of a pipeline, of the ranks of this
/// stage.
/// sends    an all-reduce of two int64 for each whole tensor and each shard; if some differ, one of
///          one int64 for each of the first 8 and each rank
/// throws   collective_error on every rank, with the tensors and the ranks that differ from most of
///          those that hold the same
template <class M>
void compare_held(M& model) {
  const detail::HeldAlike held = detail::held_alike(model);
  HostRanks ranks(model.run(), model.ranks());
  const auto size = static_cast<std::size_t>(ranks.size());
  if (size == 1 || held.marks.empty()) return;
  std::vector<std::size_t> some = detail::drifted(ranks, held.marks);
  if (some.empty()) return;
  const std::size_t count = some.size();
  some.resize(std::min<std::size_t>(count, 8));
  std::vector<std::int64_t> all(some.size() * size);  // of each shard those of all ranks
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
       " ranks hold other numbers of what they must hold alike: ", text,
       ". Their results are wrong from now on: load the last checkpoint on all ranks, and look at "
       "the machines of the ranks named here"});
}

}  // namespace shardwise
