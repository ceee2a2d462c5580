#pragma once
// Drift: whether ranks still hold the same numbers where all must hold the same.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>

#include "shardwise/comm/detail/ranks_text.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/span_of.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/train/given_alike.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

namespace detail {

/// Of each shard that several ranks hold alike, the name of its tensor and its fingerprint, or
/// `not_held` on a rank that does not hold it. A tensor that all ranks hold whole is one shard.
struct HeldAlike {
  static constexpr std::int64_t not_held = -1;

  GrowingList<std::string> names;
  GrowingList<std::int64_t> marks;

  /// Adds what this rank holds of a tensor or of other elements in memory: one of these shards.
  template <class Context, class Held>
  void add(Run<Context>& run, const std::string& name, Place shard, const Held& held) {
    for (int k = 0; k < shard.size; ++k) {
      names.add(name);
      marks.add(k == shard.rank ? fingerprint_of_held(run, held) : not_held);
    }
  }
};

/// The shard of a tensor that this rank holds, and the number of shards; no shard if no other rank
/// holds it. On a mesh, ranks at one place along `tensor` hold the same one; if it `is_cut`, ranks
/// along `data` divide it into shares, and ranks at one place along both hold the same share.
template <class Held, class Context>
Place shard_held([[maybe_unused]] const Run<Context>& run, [[maybe_unused]] bool is_cut = false) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const MeshPlace& place = run.all_ranks.place();
    Place shard = GivenWhole<Held> ? Place{} : place[MeshAxis::tensor];
    if (const Place share = place[MeshAxis::data]; is_cut)
      shard = {shard.rank * share.size + share.rank, shard.size * share.size};
    if (shard.size < run.all_ranks.size()) return shard;
  } else if constexpr (GivenWhole<Held>) {
    return {};
  }
  return {.rank = 0, .size = 0};
}

template <class M>
HeldAlike held_alike(M& model) {
  HeldAlike held;
  auto& run = model.run();
  model.visit_stored([&](const auto& parameter) {
    const Place shard = shard_held<decltype(parameter.value)>(run, run.parameters.stores_share());
    held.add(run, parameter.name, shard,
             std::span(parameter.value.data(), run.parameters.stored(parameter.slot).size));
  });
  model.visit_buffers([&](const auto& buffer) {
    held.add(run, buffer.name, shard_held<decltype(buffer.value)>(run), buffer.value);
  });
  return held;
}

/// The same of an optimizer's moments, which lie as its parameters do, or are cut over `data`.
template <class M, UpdateRule Rule>
void add_moments(HeldAlike& held, M& model, Optimizer<Rule, M>& optimizer) {
  const std::size_t count = optimizer.rule().moments();
  if (count == 0) return;
  model.visit_stored([&](const auto& parameter) {
    const Place shard =
        shard_held<decltype(parameter.value)>(model.run(), cuts_moments(optimizer.keep()));
    const std::span moments(optimizer.moments_of(parameter.slot),
                            count * optimizer.kept_of(parameter.slot).size);
    held.add(model.run(), "the moments of " + parameter.name, shard, moments);
  });
}

/// Reduces those of the ranks over the ranks. A collective.
template <AgreeingRanks R>
void reduce_marks(R& ranks, GrowingList<std::int64_t>& marks, Reduction reduction) {
  const auto all = span_of(marks.begin(), marks.size());
  ranks.all_reduce(std::span<const std::int64_t>(all), all, reduction);
}

/// The shards whose fingerprints differ between the ranks that hold them, by their numbers. A
/// collective.
template <AgreeingRanks R>
GrowingList<std::size_t> drifted(R& ranks, const GrowingList<std::int64_t>& marks) {
  const std::size_t count = marks.size();
  GrowingList<std::int64_t> largest = marks;  // then of each mark negated: minus the smallest
  for (const std::int64_t mark : marks)
    largest.add(mark == HeldAlike::not_held ? std::numeric_limits<std::int64_t>::min() : -mark);
  reduce_marks(ranks, largest, Reduction::max);
  GrowingList<std::size_t> some;
  for (std::size_t i = 0; i < count; ++i)
    if (largest[i] != -largest[count + i]) some.add(i);
  return some;
}

/// Of the ranks that hold a shard, those whose fingerprint is not that of more than half of them;
/// all of them if there is no such fingerprint. `of_ranks` has one of each of `size` ranks.
std::string other_ranks(const std::int64_t* of_ranks, std::size_t size);

/// What compare_held does, which documents it.
template <class M>
void require_alike(M& model, const HeldAlike& held) {
  HostRanks ranks(model.run(), model.ranks());
  const auto size = static_cast<std::size_t>(ranks.size());
  if (size == 1 || held.marks.empty()) return;
  const GrowingList<std::size_t> some = drifted(ranks, held.marks);
  if (some.empty()) return;
  const std::size_t named = std::min<std::size_t>(some.size(), 8);
  // Of each shard that the text names, those of all ranks.
  auto all = GrowingList<std::int64_t>::of_size(named * size);
  for (std::size_t i = 0; i < named; ++i)
    all[i * size + static_cast<std::size_t>(ranks.rank())] = held.marks[some[i]];
  reduce_marks(ranks, all, Reduction::sum);
  std::string text;
  for (std::size_t i = 0; i < named; ++i) {
    append(text, {text.empty() ? "" : "; ", held.names[some[i]], " of ",
                  other_ranks(&all[i * size], size)});
  }
  if (some.size() > named) append(text, {" and ", some.size() - named, " more"});
  throw collective_error(
      {"before step ", model.step(),
       " ranks hold other numbers of what they must hold alike: ", text,
       ". Their results are wrong from now on: load the last checkpoint on all ranks, and look at "
       "the machines of the ranks named here"});
}

}  // namespace detail

///@{
/// Compares, bit by bit through a fingerprint, the parameters and the buffers of layers that
/// several ranks hold alike, and so finds a rank whose numbers have drifted away from those of the
/// others. All ranks hold alike what is `Invariant`; on a mesh, ranks that differ only along axes
/// of samples hold the same shards of the rest. Where a Keep cuts parameters or moments over
/// `data`, ranks that hold the same share compare it, and a share of one rank alone is not
/// compared. Numbers drift by another processor or library, a fault in its memory, or a program
/// that changed them on some ranks. Call it between two steps, every N of them. With the model's
/// optimizer, its moments are compared too: those that differ change parameters in the next step.
/// A collective; for the model of one stage of a pipeline, of the ranks of this stage.
/// sends    an all-reduce of two int64 for each whole tensor and each shard or share; if some
///          differ, one of one int64 for each of the first 8 and each rank
/// throws   collective_error on every rank, with the tensors and the ranks that differ from most of
///          those that hold the same; argument_error for another model's optimizer
template <class M>
void compare_held(M& model) {
  detail::require_alike(model, detail::held_alike(model));
}
template <class M, UpdateRule Rule>
void compare_held(M& model, Optimizer<Rule, M>& optimizer) {
  detail::require_own(model, optimizer, "compare_held");
  detail::HeldAlike held = detail::held_alike(model);
  detail::add_moments(held, model, optimizer);
  detail::require_alike(model, held);
}
///@}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::string other_ranks(const std::int64_t* of_ranks, std::size_t size) {
  GrowingList<std::size_t> holders;
  for (std::size_t rank = 0; rank < size; ++rank)
    if (of_ranks[rank] != HeldAlike::not_held) holders.add(rank);
  for (const std::size_t one : holders) {
    GrowingList<std::size_t> others;
    for (const std::size_t rank : holders)
      if (of_ranks[rank] != of_ranks[one]) others.add(rank);
    if (2 * others.size() < holders.size()) return ranks_text(others);
  }
  return ranks_text(holders);
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
