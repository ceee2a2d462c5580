#pragma once
// A benchmark program: comparisons by name, run by Google Benchmark, which reads the command line,
// selects by --benchmark_filter and writes JSON by --benchmark_out. It calls each comparison once;
// how often that makes a measurement is up to interleaved.hpp.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
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

/// Takes all of an option off the command line: `--name`, or with a value `--name=`. Returns the
/// last value, which is empty for `--name`.
inline std::optional<std::string_view> take_option(int& argc, char** argv,
                                                   std::string_view option) {
  std::optional<std::string_view> value;
  char** const end = std::remove_if(argv + 1, argv + argc, [&](const char* word) {
    const std::string_view argument = word;
    const bool found = option.ends_with('=') ? argument.starts_with(option) : argument == option;
    if (found) value = argument.substr(option.size());
    return found;
  });
  *end = nullptr;
  argc = static_cast<int>(end - argv);
  return value;
}

/// 0 for what is none.
inline int number_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

/// One program's comparisons.
class Program {
 public:
  /// Takes `--rounds=N` and `--quick` off the command line; all other arguments are Google
  /// Benchmark's. `--quick` is for a look in passing: one of all sizes, and 3 rounds if no other
  /// number is given. Exits with 2 after a sentence when an argument is wrong.
  Program(int& argc, char** argv, int rounds = 31) : rounds_(rounds) {
    quick_ = take_option(argc, argv, "--quick").has_value();
    if (quick_) rounds_ = 3;
    if (const auto value = take_option(argc, argv, "--rounds=")) rounds_ = number_of(*value);
    if (rounds_ < 1) {
      std::fprintf(stderr, "%s: --rounds takes a number of at least 1\n", argv[0]);
      std::exit(2);
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) std::exit(2);
    note("rounds", std::to_string(rounds_));
    note("processor", processor());
  }

  /// How often each candidate is measured.
  int rounds() const { return rounds_; }

  ///@{
  /// All of them, or with `--quick` one: the first, if no other is given.
  template <class T>
  std::vector<T> sizes(const std::vector<T>& all) const {
    return sizes(all, all.front());
  }
  template <class T>
  std::vector<T> sizes(const std::vector<T>& all, const T& quick) const {
    return quick_ ? std::vector<T>{quick} : all;
  }
  ///@}

  /// Says under what circumstances this is measured, in the JSON too.
  void note(const std::string& what, const std::string& value) {
    notes_.emplace_back(what, value);
    benchmark::AddCustomContext(what, value);
  }

  /// Adds a comparison: `measure()` checks that all candidates compute the same, times them and
  /// returns their timings, ours last. What it throws is reported as its error.
  template <class F>
  void add(const std::string& name, F measure) {
    const auto once = [this, name, measure](benchmark::State& state) {
      for (auto _ : state) try {
          const std::vector<Timing> timings = measure();
          if (!silent_) {
            print_notes();
            print(name, timings);
          }
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

  /// Runs what the command line selects. Returns what main() returns: 1 if a comparison failed or
  /// none was selected. Where several processes measure together, all but one are `silent`.
  int run(bool silent = false) {
    silent_ = silent;
    Silence reporter;
    const std::size_t selected = benchmark::RunSpecifiedBenchmarks(&reporter);
    return failed_ || selected == 0 ? 1 : 0;
  }

 private:
  static std::string processor() {
    std::ifstream lines("/proc/cpuinfo");
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("model name", 0) == 0) return line.substr(line.find(": ") + 2);
    }
    return "unknown";
  }

  /// Once, before the first comparison.
  void print_notes() {
    for (const auto& [what, value] : notes_) std::printf("%s: %s\n", what.c_str(), value.c_str());
    notes_.clear();
  }

  /// The time is that of the last candidate, ours. The label names candidates in their order, and
  /// counters hold everything else.
  static void report(benchmark::State& state, const std::vector<Timing>& timings) {
    state.SetIterationTime(timings.back().seconds.median);
    std::string names;
    for (const Timing& timing : timings) {
      names += (names.empty() ? "" : " | ") + timing.name;
      const auto count = [&](const char* what, const Spread& spread) {
        state.counters[timing.name + what] = spread.median;
        state.counters[timing.name + what + ", 10 %"] = spread.p10;
        state.counters[timing.name + what + ", 90 %"] = spread.p90;
      };
      count(": seconds", timing.seconds);
      if (&timing != &timings.back()) count(": ours over it", timing.ours_over);
      for (const auto& [name, value] : timing.also)
        state.counters[timing.name + ": " + name] = value;
    }
    state.SetLabel(names);
  }

  int rounds_;
  bool quick_ = false;
  bool silent_ = false;
  bool failed_ = false;
  std::vector<std::pair<std::string, std::string>> notes_;
};

}  // namespace bench
