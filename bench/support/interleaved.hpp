#pragma once
// Times several ways of doing one thing against each other, in one run.
//
// On a shared machine only ratios that were taken side by side mean anything: every round runs each
// candidate once, so that whatever disturbs the machine disturbs them all alike.

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// One way to do the thing.
struct Candidate {
  std::string name;
  std::function<void()> run;
};

/// Median, 10th and 90th percentile of a sample.
struct Spread {
  double median = 0;
  double p10 = 0;
  double p90 = 0;

  static Spread of(std::vector<double> sample) {
    std::sort(sample.begin(), sample.end());
    const auto at = [&](double part) {
      return sample[static_cast<std::size_t>(part * static_cast<double>(sample.size() - 1) + 0.5)];
    };
    return {at(0.5), at(0.1), at(0.9)};
  }
};

/// What one candidate took.
struct Timing {
  std::string name;
  Spread seconds;  // for one call
  Spread speed;    // time of the first candidate over time of this one, in the same round
  std::vector<std::pair<std::string, double>> also{};  // what else there is to say, with its unit
  Spread ours_over{};  // time of this one over time of the last one, ours, in the same round
};

/// From `seconds[candidate][round]`; the last candidate is ours.
inline std::vector<Timing> timings_of(const std::vector<std::string>& names,
                                      const std::vector<std::vector<double>>& seconds) {
  const auto ratio = [](const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> ratios(a.size());
    std::transform(a.begin(), a.end(), b.begin(), ratios.begin(), std::divides<>());
    return Spread::of(ratios);
  };
  std::vector<Timing> timings;
  for (std::size_t c = 0; c < names.size(); ++c) {
    timings.push_back({names[c],
                       Spread::of(seconds[c]),
                       ratio(seconds.front(), seconds[c]),
                       {},
                       ratio(seconds[c], seconds.back())});
  }
  return timings;
}

/// With the speed, in `unit`, at which each candidate has got through `amount` in one call.
inline std::vector<Timing> with_speed(std::vector<Timing> timings, const std::string& unit,
                                      double amount) {
  for (Timing& timing : timings) timing.also.emplace_back(unit, amount / timing.seconds.median);
  return timings;
}

/// What time is: the wall's, or that of the calling thread alone. The second leaves out the time
/// that other programs take from it and is for work on one thread only.
enum class Clock { wall, thread };

/// How long to measure, and by which clock.
struct Effort {
  int rounds = 51;
  double sample_seconds = 2e-3;  // a sample repeats a short call until it lasts about this long
  Clock clock = Clock::wall;
};

/// Seconds since some time in the past.
inline double now(Clock clock = Clock::wall) {
  timespec time{};
  clock_gettime(clock == Clock::thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// sample(i) of so many candidates in each round, in turns; the order is reversed in every second
/// round, so that what disturbs the machine disturbs all alike. Gives [candidate][round].
template <class Sample>
std::vector<std::vector<double>> in_rounds(std::size_t count, int rounds, Sample sample) {
  std::vector<std::vector<double>> seconds(count);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < count; ++turn) {
      const std::size_t i = round % 2 == 0 ? turn : count - 1 - turn;
      seconds[i].push_back(sample(i));
    }
  }
  return seconds;
}

/// Warms every candidate up, then times them in turns. `seconds_of(run, calls)` gives the seconds
/// of a call, of so many.
template <class SecondsOf>
std::vector<Timing> interleave(const std::vector<Candidate>& candidates, const Effort& effort,
                               SecondsOf seconds_of) {
  std::vector<std::string> names;
  std::vector<int> calls;
  for (const Candidate& candidate : candidates) {
    names.push_back(candidate.name);
    candidate.run();
    const double once = seconds_of(candidate.run, 3);
    calls.push_back(std::max(1, static_cast<int>(effort.sample_seconds / once)));
  }
  return timings_of(names, in_rounds(names.size(), effort.rounds, [&](std::size_t i) {
                      return seconds_of(candidates[i].run, calls[i]);
                    }));
}

/// The same by a clock of the host.
inline std::vector<Timing> interleave(const std::vector<Candidate>& candidates,
                                      const Effort& effort = {}) {
  return interleave(candidates, effort, [&](const std::function<void()>& run, int calls) {
    const double start = now(effort.clock);
    for (int i = 0; i < calls; ++i) run();
    return (now(effort.clock) - start) / calls;
  });
}

/// The title, then one line a candidate: time of a call in microseconds, speed against the first
/// candidate, and the rest.
inline void print(const std::string& title, const std::vector<Timing>& timings) {
  std::printf("%s\n", title.c_str());
  for (const Timing& timing : timings) {
    std::printf("  %-34s %10.2f us [%10.2f, %10.2f]   speed %.3f [%.3f, %.3f]", timing.name.c_str(),
                timing.seconds.median * 1e6, timing.seconds.p10 * 1e6, timing.seconds.p90 * 1e6,
                timing.speed.median, timing.speed.p10, timing.speed.p90);
    for (const auto& [what, value] : timing.also) std::printf("   %s %.3g", what.c_str(), value);
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace bench
