#pragma once
// Times what all ranks do together.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "split/engine.hpp"
#include "split/ranks.hpp"

namespace split {

using Run = std::function<void()>;

/// `value` of rank 0, on every rank.
inline std::int64_t of_first(Ranks& ranks, std::int64_t value) {
  ranks.broadcast(std::span(&value, 1), 0);
  return value;
}

/// The sum or another reduction over the ranks, on every rank.
inline std::size_t over_ranks(Ranks& ranks, std::size_t mine,
                              shardwise::Reduction reduction = shardwise::Reduction::sum) {
  auto value = static_cast<std::int64_t>(mine);
  ranks.all_reduce(std::span<const std::int64_t>(&value, 1), std::span(&value, 1), reduction);
  return static_cast<std::size_t>(value);
}

/// Seconds of one call, from a barrier to a barrier.
inline double seconds_together(Ranks& ranks, int calls, const Run& run) {
  using Clock = std::chrono::steady_clock;
  ranks.clear();  // the counter's log would grow without end
  ranks.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) run();
  ranks.barrier();
  return std::chrono::duration<double>(Clock::now() - begin).count() / calls;
}

/// How often a sample makes a call, on every rank the same. Warms up.
inline int calls_of_sample(Ranks& ranks, const Run& run, double sample_seconds) {
  seconds_together(ranks, 1, run);
  const double once = seconds_together(ranks, 2, run);
  const double calls = std::clamp(sample_seconds / once, 1.0, 10000.0);
  return static_cast<int>(of_first(ranks, static_cast<std::int64_t>(calls)));
}

/// For each run its time in each round. Every round makes all runs once, in the reverse order
/// every second time, so that what disturbs the machine disturbs all alike. Empty if stopped.
inline std::vector<std::vector<double>> in_turns(Ranks& ranks, const std::vector<Run>& runs,
                                                 const Effort& effort) {
  std::vector<int> calls;
  for (const Run& run : runs) calls.push_back(calls_of_sample(ranks, run, effort.sample_seconds));
  std::vector<std::vector<double>> seconds(runs.size());
  for (int round = 0; round < effort.rounds; ++round) {
    const bool stop = effort.stop != nullptr && effort.stop->load();
    if (of_first(ranks, stop ? 1 : 0) != 0) return {};
    for (std::size_t turn = 0; turn < runs.size(); ++turn) {
      const std::size_t i = round % 2 == 0 ? turn : runs.size() - 1 - turn;
      seconds[i].push_back(seconds_together(ranks, calls[i], runs[i]));
    }
  }
  return seconds;
}

}  // namespace split
