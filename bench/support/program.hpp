#pragma once
// A benchmark program: comparisons by name, run by Google Benchmark, which reads the command line,
// selects by --benchmark_filter and writes JSON by --benchmark_out. It calls each comparison once;
// how often that makes a measurement is up to interleaved.hpp.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/interleaved.hpp"

namespace bench {

/// Says nothing: comparisons print themselves.
class Silence : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

/// One program's comparisons.
class Program {
 public:
  /// Takes `--rounds=N` off the command line; all other arguments are Google Benchmark's.
  /// Exits with 2 after a sentence when one is neither.
  Program(int& argc, char** argv, int rounds = 31) : rounds_(rounds) {
    constexpr std::string_view option = "--rounds=";
    int kept = 1;
    for (int i = 1; i < argc; ++i) {
      const std::string_view argument = argv[i];
      if (argument.substr(0, option.size()) == option) {
        rounds_ = std::atoi(argv[i] + option.size());
      } else {
        argv[kept++] = argv[i];
      }
    }
    argc = kept;
    if (rounds_ < 1) {
      std::fprintf(stderr, "%s: --rounds takes a number of at least 1\n", argv[0]);
      std::exit(2);
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) std::exit(2);
  }

  /// How often each candidate is measured.
  int rounds() const { return rounds_; }

  /// Adds a comparison: `measure()` checks that all candidates compute the same, times them and
  /// returns their timings, ours last. What it throws is reported as its error.
  template <class F>
  void add(const std::string& name, F measure) {
    const auto once = [this, name, measure](benchmark::State& state) {
      for (auto _ : state) try {
          const std::vector<Timing> timings = measure();
          if (!silent_) print(name, timings);
          report(state, timings);
        } catch (const std::exception& e) {
          std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
          failed_ = true;
          state.SkipWithError(e.what());
        }
    };
    benchmark::RegisterBenchmark(name.c_str(), once)
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }

  /// Runs what the command line selects. Returns what main() returns: 1 if a comparison failed.
  /// Where several processes measure together, all but one are `silent`.
  int run(bool silent = false) {
    silent_ = silent;
    Silence reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    return failed_ ? 1 : 0;
  }

 private:
  /// The time is that of the last candidate, ours. Counters, for JSON, hold everything else.
  static void report(benchmark::State& state, const std::vector<Timing>& timings) {
    state.SetIterationTime(timings.back().seconds.median);
    for (const Timing& timing : timings) {
      const auto count = [&](const char* what, const Spread& spread) {
        state.counters[timing.name + what] = spread.median;
        state.counters[timing.name + what + ", 10 %"] = spread.p10;
        state.counters[timing.name + what + ", 90 %"] = spread.p90;
      };
      count(": seconds", timing.seconds);
      count(": speed", timing.speed);
      for (const auto& [name, value] : timing.also)
        state.counters[timing.name + ": " + name] = value;
    }
  }

  int rounds_;
  bool silent_ = false;
  bool failed_ = false;
};

}  // namespace bench
