#pragma once
// A random program of ranks with one fault, as plain data that is drawn from a seed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/sentence.hpp"

namespace trials {

using Counts = std::vector<std::size_t>;
using Members = std::vector<int>;  ///< world ranks of a group, in its order

enum class Act {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  gather,
  scatter,
  all_to_all,
  barrier,
  message,  ///< from each rank of the group to the next
  split,
  train,      ///< one step of the group's model
  checkpoint  ///< saves the run of the group's model and loads it again
};
inline constexpr std::array act_names{"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                      "gather",     "scatter",    "all_to_all",     "barrier",
                                      "message",    "split",      "train",          "checkpoint"};

enum class Fault {
  throws,
  leaves,  ///< returns early
  skips,   ///< leaves out one call
  other_call,
  other_size,
  other_dtype,
  other_reduction,
  other_root,
  other_counts,       ///< of the same total
  other_group_first,  ///< makes the next call, in another group, before this one
  disk_is_full,
  memory_runs_out,
  never_comes,  ///< sleeps without end
  is_killed,    ///< SIGKILL; this one and the next need ranks that are processes
  is_stopped    ///< SIGSTOP
};
inline constexpr std::array fault_names{
    "throws",       "leaves",          "skips",       "other call",   "other size",
    "other dtype",  "other reduction", "other root",  "other counts", "other group first",
    "disk is full", "memory runs out", "never comes", "is killed",    "is stopped"};
inline constexpr std::size_t faults_of_threads = 13;

struct Step {
  Act act = Act::barrier;
  std::size_t group = 0;  ///< 0 is all ranks, others in the order of splits
  shardwise::Dtype dtype = shardwise::Dtype::float32;
  shardwise::Reduction reduction = shardwise::Reduction::sum;
  std::size_t elements = 0;
  std::size_t root = 0;      ///< modulo the group's size
  std::size_t variant = 0;   ///< of block sizes and of colors
  bool moves_count = false;  ///< one element is in another block

  /// Elements of block `i` of `blocks`. All are equal, or some are empty.
  std::size_t block(std::size_t i) const {
    return variant % 2 == 0 ? elements : elements * ((i + variant / 2) % 3);
  }
  Counts counts(std::size_t blocks) const {
    Counts all(blocks);
    for (std::size_t i = 0; i < blocks; ++i) all[i] = block(i);
    return moved(all);
  }
  Counts moved(Counts all) const {
    if (!moves_count) return all;
    std::size_t from = 0;
    while (all[from] == 0) ++from;
    --all[from];
    ++all[(from + 1) % all.size()];
    return all;
  }

  int color(std::size_t member) const {
    return static_cast<int>((member + variant) % (1 + variant % 3));
  }
  bool reverses() const { return variant % 2 == 1; }
};

inline bool has_counts(Act act) {
  return act == Act::all_gather || act == Act::reduce_scatter || act == Act::gather ||
         act == Act::scatter || act == Act::all_to_all;
}
inline bool has_root(Act act) {
  return act == Act::broadcast || act == Act::gather || act == Act::scatter;
}
inline bool has_elements(Act act) { return act <= Act::all_to_all || act == Act::message; }

struct Program {
  std::uint64_t seed = 0;
  int ranks = 0;
  bool marked = false;  ///< whether the caller marks each of its calls
  std::vector<Step> steps{};
  Fault fault{};
  int culprit = 0;
  std::size_t moment = 0;       ///< the step of the fault
  long allocations = 0;         ///< that succeed before memory runs out
  std::size_t drawn_again = 0;  ///< faults that could have no effect, drawn before this one

  /// The groups that `rank` is in when step `until` begins; in each, its members.
  std::vector<Members> groups_of(int rank, std::size_t until) const {
    std::vector<Members> groups(1, Members(static_cast<std::size_t>(ranks)));
    std::iota(groups[0].begin(), groups[0].end(), 0);
    for (std::size_t i = 0; i < until; ++i) {
      if (steps[i].act != Act::split) continue;
      const Members whole = groups[steps[i].group];
      const auto color = [&](std::size_t m) { return steps[i].color(m); };
      std::size_t mine = 0;
      while (whole[mine] != rank) ++mine;
      Members part;
      for (std::size_t m = 0; m < whole.size(); ++m)
        if (color(m) == color(mine))
          part.insert(steps[i].reverses() ? part.begin() : part.end(), whole[m]);
      groups.push_back(part);
    }
    return groups;
  }

  /// The step that the culprit makes instead of its own.
  Step faulty_step() const {
    Step step = steps[moment];
    const auto next = [](auto value, unsigned values) {
      return static_cast<decltype(value)>((static_cast<unsigned>(value) + 1) % values);
    };
    switch (fault) {
      case Fault::other_call:
        step.act = step.act == Act::barrier ? Act::all_reduce : Act::barrier;
        break;
      case Fault::other_size:
        ++step.elements;
        break;
      case Fault::other_dtype:
        step.dtype = next(step.dtype, 7);
        break;
      case Fault::other_reduction:
        step.reduction = next(step.reduction, 3);
        break;
      case Fault::other_root:
        ++step.root;
        break;
      case Fault::other_counts:
        step.moves_count = true;
        break;
      default:
        break;
    }
    return step;
  }

  /// Whether the fault can change what the culprit does in this step.
  bool fault_applies() const {
    const Step& step = steps[moment];
    const std::vector<Members> groups = groups_of(culprit, moment);
    const bool alone = groups[step.group].size() == 1;
    switch (fault) {
      case Fault::throws:
      case Fault::leaves:
      case Fault::never_comes:
      case Fault::is_killed:
      case Fault::is_stopped:
      case Fault::memory_runs_out:
        return true;
      case Fault::disk_is_full:
        return step.act == Act::checkpoint;
      case Fault::skips:
      case Fault::other_call:
        return !alone;
      case Fault::other_size:
        if (step.act == Act::all_to_all && !sends_to_others(step, groups[step.group])) return false;
        return !alone && (has_elements(step.act) || step.act == Act::train);
      case Fault::other_dtype:
        return !alone && has_elements(step.act);
      case Fault::other_reduction:
        return !alone && (step.act == Act::all_reduce || step.act == Act::reduce_scatter);
      case Fault::other_root:
        return !alone && has_root(step.act);
      case Fault::other_counts:
        return !alone && has_counts(step.act) && step.elements > 0;
      case Fault::other_group_first: {
        if (moment + 1 == steps.size()) return false;
        const Step& next = steps[moment + 1];
        return step.act <= Act::message && next.act <= Act::message && step.group != next.group &&
               !alone && groups[next.group].size() > 1;
      }
    }
    return false;
  }

  /// Whether the culprit has more for others in an all_to_all of one more element.
  bool sends_to_others(Step step, const Members& group) const {
    ++step.elements;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (group[i] != culprit) continue;
      for (std::size_t r = 0; r < group.size(); ++r)
        if (r != i && step.block(i + r) != 0) return true;
    }
    return false;
  }

  std::string text() const {
    std::string all = shardwise::detail::sentence(
        {"seed ", seed, ": ", ranks, marked ? " ranks, marked; rank " : " ranks; rank ", culprit,
         ", ", fault_names[static_cast<std::size_t>(fault)], ", in step ", moment});
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& s = steps[i];
      all += shardwise::detail::sentence({"\n  step ", i, ": ",
                                          act_names[static_cast<std::size_t>(s.act)], " in group ",
                                          s.group});
      if (has_elements(s.act))
        all += shardwise::detail::sentence({", ", shardwise::name(s.dtype), ", ", s.elements,
                                            " elements, ", shardwise::name(s.reduction), ", root ",
                                            s.root, ", variant ", s.variant});
    }
    return all;
  }
};

/// `faults` are the first ones of `Fault` that may be drawn.
inline Program random_program(std::uint64_t seed, int most_ranks, std::size_t faults) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  Program p{.seed = seed};
  p.fault = static_cast<Fault>(below(faults));
  // A rank that never comes costs two time-outs.
  if (p.fault == Fault::never_comes && below(4) != 0) p.fault = static_cast<Fault>(below(12));
  while (true) {
    p.ranks = 2 + static_cast<int>(below(static_cast<std::size_t>(most_ranks) - 1));
    p.marked = below(4) != 0;
    p.steps.resize(1 + below(8));
    std::size_t groups = 1;
    for (Step& step : p.steps) {
      constexpr std::array<std::size_t, 5> sizes{0, 1, 10, 700, 3000};  // copied and read in place
      constexpr std::array<Act, 4> others{Act::message, Act::split, Act::train, Act::checkpoint};
      const std::size_t act = below(16);
      step = {.act = act < 8 ? static_cast<Act>(act) : others[act % 4],
              .group = below(groups),
              .dtype = static_cast<shardwise::Dtype>(below(7)),
              .reduction = static_cast<shardwise::Reduction>(below(3)),
              .elements = sizes[below(sizes.size())],
              .root = below(8),
              .variant = below(12)};
      if (step.act == Act::checkpoint && below(2) == 0) step.act = Act::train;
      if (step.act == Act::split) ++groups;
    }
    p.culprit = static_cast<int>(below(static_cast<std::size_t>(p.ranks)));
    p.moment = below(p.steps.size());
    p.allocations = static_cast<long>(below(20));
    if (p.fault_applies()) return p;
    ++p.drawn_again;
  }
}

}  // namespace trials
