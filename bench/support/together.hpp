#pragma once
// Times what all ranks do together, on whatever communicator they have. All functions are
// collectives.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "support/interleaved.hpp"

namespace bench {

using Run = std::function<void()>;

/// `value` of rank 0, on every rank.
template <class C>
std::int64_t of_first(C& ranks, std::int64_t value) {
  ranks.broadcast(std::span(&value, 1), 0);
  return value;
}

/// The sum or another reduction over the ranks, on every rank.
template <class C>
std::size_t over_ranks(C& ranks, std::size_t mine,
                       shardwise::Reduction reduction = shardwise::Reduction::sum) {
  auto value = static_cast<std::int64_t>(mine);
  ranks.all_reduce(std::span<const std::int64_t>(&value, 1), std::span(&value, 1), reduction);
  return static_cast<std::size_t>(value);
}

/// No figure for a wrong result: throws std::runtime_error on every rank unless all are right, so
/// that none waits for another one.
template <class C>
void require_on_all(C& ranks, bool right, const std::string& what) {
  if (const std::size_t wrong = over_ranks(ranks, right ? 0 : 1); wrong > 0)
    throw std::runtime_error(what + ": not the result that was worked out here, on " +
                             std::to_string(wrong) + " of " + std::to_string(ranks.size()) +
                             " ranks");
}

/// Seconds of one call, from a barrier to a barrier.
template <class C>
double seconds_together(C& ranks, int calls, const Run& run) {
  if constexpr (requires { ranks.clear(); })
    ranks.clear();  // the log of ranks that count would grow without end
  ranks.barrier();
  const double begin = now();
  for (int i = 0; i < calls; ++i) run();
  ranks.barrier();
  return (now() - begin) / calls;
}

/// How often a sample makes a call, on every rank the same. Warms up.
template <class C>
int calls_of_sample(C& ranks, const Run& run, double sample_seconds) {
  double once = seconds_together(ranks, 1, run);
  const bool is_long = of_first(ranks, once > sample_seconds ? 1 : 0) != 0;
  if (!is_long) once = seconds_together(ranks, 2, run);
  const double calls = std::clamp(sample_seconds / once, 1.0, 10000.0);
  return static_cast<int>(of_first(ranks, static_cast<std::int64_t>(calls)));
}

/// For each run its time in each round, in turns. A sample repeats a short call until it lasts
/// about `sample_seconds`.
template <class C>
std::vector<std::vector<double>> in_turns(C& ranks, const std::vector<Run>& runs, int rounds,
                                          double sample_seconds) {
  std::vector<int> calls;
  for (const Run& run : runs) calls.push_back(calls_of_sample(ranks, run, sample_seconds));
  return in_rounds(runs.size(), rounds,
                   [&](std::size_t i) { return seconds_together(ranks, calls[i], runs[i]); });
}

/// `interleave` for what the ranks do together. Every rank gives the same candidates.
template <class C>
std::vector<Timing> interleave(C& ranks, const std::vector<Candidate>& candidates, int rounds,
                               double sample_seconds) {
  std::vector<std::string> names;
  std::vector<Run> runs;
  for (const Candidate& candidate : candidates) {
    names.push_back(candidate.name);
    runs.push_back(candidate.run);
  }
  return timings_of(names, in_turns(ranks, runs, rounds, sample_seconds));
}

}  // namespace bench
