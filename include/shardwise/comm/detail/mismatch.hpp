#pragma once
// Which ranks made different calls, and the text of the error about them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/equal_groups.hpp"
#include "shardwise/comm/given_options.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// A call as a text that ranks can exchange, cut off if it is longer, and its mark.
struct CallText {
  Mark mark{};
  std::array<char, 256> call{};
  std::array<char, 128> place{};  ///< in a model; the name of the mark's part is of one process
  OptionsText options{};          ///< that the rank was given

  CallText() = default;
  explicit CallText(const Call& made);

  /// What a rank left out that is ahead of this call: "0/3: RowParallelLinear, backward"; outside
  /// of layers the call itself.
  std::string what() const;

 private:
  template <std::size_t Room>
  static void put(const std::string& text, std::array<char, Room>& to) {
    text.copy(to.data(), Room - 1);
  }
};

/// The text of a Mismatch; `calls` has the CallText of each rank. Empty if there is no memory.
std::string describe_mismatch(std::uint64_t number, std::span<const int> ranks,
                              const CallText* calls, Relation<std::size_t> agree) noexcept;

/// Whether `receive` expects the message of `sent`.
inline bool is_same_message(const Call& sent, const Call& receive) {
  return sent.dtype == receive.dtype && sent.elements == receive.elements &&
         sent.tag == receive.tag && sent.mark.step == receive.mark.step &&
         sent.mark.batch == receive.mark.batch;
}

/// The text about a message that its receiver does not expect. The ranks are world ranks.
std::string describe_message_mismatch(int sender, const Call& sent, int receiver,
                                      const Call& receive);

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "shardwise/comm/detail/ranks_text.hpp"
#include "shardwise/comm/detail/unlike_options.hpp"

namespace shardwise::detail {

/// Sorts a few things, and keeps equal ones in order. Every program compiles this, and
/// std::stable_sort takes the compiler much longer.
template <class T>
[[gnu::cold]] void sort_few(GrowingList<T>& things, std::type_identity_t<Relation<T>> before) {
  for (std::size_t i = 1; i < things.size(); ++i)
    for (std::size_t j = i; j > 0 && before(things[j], things[j - 1]); --j)
      std::swap(things[j], things[j - 1]);
}

/// The calls of all ranks of a group in collective `number`, of which some differ, and the text of
/// the error about them. `ranks` are the world ranks of the members.
class Mismatch {
 public:
  Mismatch(std::uint64_t number, std::span<const int> ranks, const CallText* calls)
      : number_(number), ranks_(ranks), calls_(calls) {}

  /// `agree(q, r)` says whether ranks q and r made the same call, in the same place. For example
  /// "rank 0 called all_reduce(...); ranks 1, 2 called barrier()", or "rank 1 is at step 12, the
  /// others at step 11: it left out 0/3: RowParallelLinear, backward".
  std::string text(Relation<std::size_t> agree) const {
    const std::string what = text_of_given();
    return sentence({"ranks disagree in collective ", number_, " of their group of ", ranks_.size(),
                     ": ", what.empty() ? text_of_calls(agree) : what});
  }

 private:
  [[gnu::cold]] std::string names(const SomeRanks& group) const {
    GrowingList<int> of_world;
    for (const std::size_t rank : group) of_world.add(ranks_[rank]);
    return ranks_text(of_world);
  }

  [[gnu::cold]] std::string text_of_calls(Relation<std::size_t> agree) const {
    std::string text = text_of_places();
    const bool same_place = text.empty();
    const auto by_text = groups_of_equal(ranks_.size(), [&](std::size_t q, std::size_t r) {
      return calls_[q].call == calls_[r].call;
    });
    const auto groups = same_place ? groups_of_equal(ranks_.size(), agree) : by_text;
    // For calls deeper in a model than a path holds: groups whose calls look alike.
    const bool need_place = groups.size() > by_text.size() && calls_[0].place[0] != '\0';
    if (same_place || groups.size() > 1)
      for (const SomeRanks& group : groups) {
        const CallText& call = calls_[group[0]];
        append(text, {text.empty() ? "" : "; ", names(group), " called ", call.call.data(),
                      need_place ? " at " : "", need_place ? call.place.data() : ""});
      }
    return text + "; all must make the same call";
  }

  /// For example "rank 1 was given another seed than ranks 0, 2"; empty if all were given the same,
  /// or if ranks are in different batches or phases, for which they are given different things.
  [[gnu::cold]] std::string text_of_given() const {
    if (!alike(&Mark::step) || !alike(&Mark::batch) || !alike(&Mark::phase)) return {};
    const auto comparing = groups_of_equal(ranks_.size(), [&](std::size_t q, std::size_t r) {
      return compares_given(q) == compares_given(r);
    });
    if (comparing.size() > 1)
      return groups_of_places().size() == 1 ? text_of_comparing(comparing) : std::string();
    using Field = std::uint32_t GivenAlike::*;
    struct Thing {
      const char* name;
      Field field;
    };
    const Thing things[] = {{"another seed", &GivenAlike::seed},
                            {"a model of another type or other sizes", &GivenAlike::model},
                            {"other inputs", &GivenAlike::inputs},
                            {"other targets", &GivenAlike::targets},
                            {"other options", &GivenAlike::options}};
    std::string text;
    for (const Thing& thing : things) {
      auto groups = groups_of_equal(ranks_.size(), [&](std::size_t q, std::size_t r) {
        return calls_[q].mark.given.*thing.field == calls_[r].mark.given.*thing.field;
      });
      if (groups.size() < 2) continue;
      if (thing.field == &GivenAlike::options) {
        const std::string values = text_of_options();
        append(text, {text.empty() || values.empty() ? "" : "; ", values});
        if (!values.empty()) continue;
      }
      sort_few(groups, has_more);
      const SomeRanks rest = all_but_first(groups);
      append(text, {text.empty() ? "" : "; ", names(rest),
                    rest.size() == 1 ? " was given " : " were given ", thing.name, " than ",
                    names(groups[0])});
    }
    if (text.empty()) return text;
    if (calls_[0].mark.phase == Phase::evaluate)
      return sentence({text,
                       ". No rank's results would be right: give all ranks the same model, options "
                       "and tokens, in the same order"});
    return sentence(
        {text, "; found at step ", calls_[0].mark.step,
         ". All would train on with wrong results: give all ranks the same seed, model, options "
         "of optimizer, step and loss, and Invariant and Replicated inputs and targets; on a mesh, "
         "ranks along tensor "
         "have the same slice of a batch"});
  }

  /// All options that differ. Empty if these are too many for a CallText.
  [[gnu::cold]] std::string text_of_options() const {
    GrowingList<const OptionsText*> all;
    for (std::size_t r = 0; r < ranks_.size(); ++r) all.add(&calls_[r].options);
    return text_of_unlike(all, ranks_);
  }

  bool compares_given(std::size_t rank) const { return calls_[rank].mark.given != GivenAlike{}; }

  [[gnu::cold]] std::string text_of_comparing(const GrowingList<SomeRanks>& groups) const {
    const std::size_t first = compares_given(groups[0][0]) ? 0 : 1;
    return sentence(
        {"in step ", calls_[0].mark.step, ", only ", names(groups[first]),
         groups[first].size() == 1 ? " compares what it was" : " compare what they were",
         " given, and not ", names(groups[1 - first]),
         ": give ModelOptions::compare_given_every the same number on all ranks"});
  }

  static constexpr auto has_more = [](const SomeRanks& a, const SomeRanks& b) {
    return a.size() > b.size();
  };

  [[gnu::cold]] static SomeRanks all_but_first(const GrowingList<SomeRanks>& groups) {
    SomeRanks rest;
    for (std::size_t g = 1; g < groups.size(); ++g)
      for (const std::size_t rank : groups[g]) rest.add(rank);
    sort_few(rest, [](std::size_t a, std::size_t b) { return a < b; });
    return rest;
  }

  [[gnu::cold]] GrowingList<SomeRanks> groups_of_places() const {
    return groups_of_equal(ranks_.size(), [&](std::size_t q, std::size_t r) {
      return !is_before(q, r) && !is_before(r, q);
    });
  }

  /// Empty if all ranks are at the same place.
  [[gnu::cold]] std::string text_of_places() const {
    auto groups = groups_of_places();
    if (groups.size() < 2) return {};
    sort_few(groups, [&](const SomeRanks& a, const SomeRanks& b) { return is_before(a[0], b[0]); });
    const SomeRanks ahead = all_but_first(groups);
    const std::string why = calls_[groups[0][0]].mark.step == 0
                                ? cause_outside(groups[0], groups[1])
                            : groups.size() == 2 ? cause(ahead, groups[0])
                                                 : left_out(names(ahead), groups[0]);
    return sentence({text_of_positions(std::move(groups)), ": ", why});
  }

  /// "rank 1 is at step 12, the others at step 11".
  [[gnu::cold]] std::string text_of_positions(GrowingList<SomeRanks> groups) const {
    sort_few(groups, [](const SomeRanks& a, const SomeRanks& b) { return has_more(b, a); });
    const bool same_step = alike(&Mark::step);
    const bool same_batch = alike(&Mark::batch);
    std::string text;
    for (const SomeRanks& group : groups) {
      const Mark& mark = calls_[group[0]].mark;
      const bool the_rest = groups.size() == 2 && group.size() > 1 && !text.empty();
      append(text, {text.empty() ? "" : ", ", the_rest ? "the others" : names(group),
                    !text.empty()      ? ""
                    : group.size() > 1 ? " are"
                                       : " is",
                    mark.step == 0 ? " at no step" : sentence({" at step ", mark.step})});
      if (!same_batch && mark.step != 0) text += ", " + batch_or_phase(mark);
      if (same_step && same_batch) append(text, {", ", calls_[group[0]].what()});
    }
    return text;
  }

  template <class T>
  bool alike(T Mark::*field) const {
    for (std::size_t r = 1; r < ranks_.size(); ++r)
      if (calls_[r].mark.*field != calls_[0].mark.*field) return false;
    return true;
  }

  /// Calls at no step may be made before those of a step or after them.
  [[gnu::cold]] std::string cause_outside(const SomeRanks& outside,
                                          const SomeRanks& in_step) const {
    return sentence({names(outside), " made once more ", calls_[outside[0]].what(),
                     ", or left out ", calls_[in_step[0]].what()});
  }

  /// The fewer ones are wrong.
  [[gnu::cold]] std::string cause(const SomeRanks& ahead, const SomeRanks& behind) const {
    if (behind.size() > ahead.size())
      return left_out(ahead.size() == 1 ? "it" : names(ahead), behind);
    if (behind.size() < ahead.size())
      return sentence({behind.size() == 1 ? "it" : names(behind), " made once more ",
                       calls_[behind[0]].what()});
    return sentence({left_out(names(ahead), behind), ", or ", names(behind), " made it once more"});
  }
  [[gnu::cold]] std::string left_out(const std::string& who, const SomeRanks& behind) const {
    return sentence({who, " left out ", calls_[behind[0]].what()});
  }

  /// Whether rank q is at an earlier place of a step than rank r, or in an earlier step. Parts run
  /// backward from the last one.
  [[gnu::cold]] bool is_before(std::size_t q, std::size_t r) const {
    const Mark &a = calls_[q].mark, &b = calls_[r].mark;
    if (a.step != b.step) return a.step < b.step;
    if (a.batch != b.batch) return a.batch < b.batch;
    if (a.phase != b.phase) return a.phase < b.phase;
    return a.phase == Phase::backward ? filled_path(b) < filled_path(a)
                                      : filled_path(a) < filled_path(b);
  }

  /// A composition itself makes calls behind its parts, and in backward ahead of them.
  [[gnu::cold]] static decltype(Mark::path) filled_path(const Mark& mark) {
    auto path = mark.path;
    std::fill(path.begin() + static_cast<std::ptrdiff_t>(mark.numbers()), path.end(),
              std::numeric_limits<std::uint16_t>::max());
    return path;
  }

  std::uint64_t number_;
  std::span<const int> ranks_;
  const CallText* calls_;  // of each of them
};

SHARDWISE_INLINE CallText::CallText(const Call& made) : mark(made.mark) {
  put(text_without_mark(made), call);
  put(place_in_model(mark), place);
  if (mark.given.all_options != nullptr) options = OptionsText(*mark.given.all_options);
}

SHARDWISE_INLINE std::string CallText::what() const {
  if (mark.depth > 0) return place.data();
  const bool is_of_model = place[0] != '\0';
  return sentence({call.data(), is_of_model ? " of " : "", place.data()});
}

SHARDWISE_INLINE std::string describe_mismatch(std::uint64_t number, std::span<const int> ranks,
                                               const CallText* calls,
                                               Relation<std::size_t> agree) noexcept try {
  return Mismatch(number, ranks, calls).text(agree);
} catch (...) {
  return {};
}

SHARDWISE_INLINE std::string describe_message_mismatch(int sender, const Call& sent, int receiver,
                                                       const Call& receive) {
  return sentence({"rank ", sender, " called ", sent, ", rank ", receiver, " called ", receive,
                   "; dtype, elements, tag and step of a message must be the same on both sides"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
