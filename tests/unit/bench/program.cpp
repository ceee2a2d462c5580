// What benchmark programs say of comparisons: exit status, JSON, and ratios of one round.

#include "support/program.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

/// With a command line as main() gets it: the library keeps pointers to its words.
bench::Program program_with(std::vector<std::string> arguments) {
  static std::list<std::vector<std::string>> kept;
  kept.push_back(std::move(arguments));
  std::vector<std::string>& words = kept.back();
  words.insert(words.begin(), "program");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(words.size());
  benchmark::ClearRegisteredBenchmarks();
  return {count, pointers.data()};
}

/// The exit status of a process that runs this.
template <class F>
int status_of(F run) {
  std::fflush(stdout);  // or the child writes it too
  const pid_t child = fork();
  if (child == 0) {
    run();
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("ratios are those of one round") {
  const auto timings = bench::timings_of({"by hand", "ours"}, {{2, 12, 4}, {1, 3, 4}});
  CHECK(timings[0].seconds.median == 4);
  CHECK(timings[0].ours_over.p10 == 1);
  CHECK(timings[0].ours_over.median == 2);
  CHECK(timings[0].ours_over.p90 == 4);
  CHECK(timings[1].speed.median == 2);
  CHECK(timings[1].ours_over.median == 1);
}

TEST_CASE("candidates take turns, and the order turns round") {
  std::string order;
  const auto writes = [&](char letter) { return [&order, letter] { order += letter; }; };
  bench::interleave({{"a", writes('a')}, {"b", writes('b')}}, {3, 0.0});
  CHECK(order ==
        "aaaabbbb"
        "ab"
        "ba"
        "ab");
}

TEST_CASE("a comparison that throws is an error of the program, and the others still run") {
  const std::filesystem::path json =
      std::filesystem::temp_directory_path() / ("program." + std::to_string(getpid()) + ".json");
  const int status = status_of([&] {
    bench::Program program = program_with({"--benchmark_out=" + json.string()});
    program.add("wrong", []() -> std::vector<bench::Timing> {
      throw std::runtime_error("element 3 is 1, not 2");
    });
    program.add("sound", [] { return bench::timings_of({"by hand", "ours"}, {{6}, {3}}); });
    std::exit(program.run(true));
  });
  CHECK(status == 1);
  const std::string text = text_of(json);
  CHECK(text.find(R"("error_message": "element 3 is 1, not 2")") != std::string::npos);
  CHECK(text.find(R"("label": "by hand | ours")") != std::string::npos);
  CHECK(text.find(R"("by hand: ours over it": 2.0000000000000000e+00)") != std::string::npos);
  CHECK(text.find(R"("real_time": 3.0000000000000000e+06)") != std::string::npos);
  std::filesystem::remove(json);
}

TEST_CASE("a program in which all is well returns 0, and one that selects nothing does not") {
  const auto run = [](const std::string& filter) {
    return status_of([&] {
      bench::Program program = program_with({"--benchmark_filter=" + filter});
      program.add("sound", [] { return bench::timings_of({"ours"}, {{1}}); });
      std::exit(program.run(true));
    });
  };
  CHECK(run("sound") == 0);
  CHECK(run("none") == 1);
}

TEST_CASE("rounds and sizes are those of the command line") {
  CHECK(program_with({"--rounds=7"}).rounds() == 7);
  CHECK(program_with({"--rounds=7"}).sizes<int>({4, 5}) == std::vector{4, 5});
  CHECK(program_with({"--quick"}).rounds() == 3);
  CHECK(program_with({"--quick"}).sizes<int>({4, 5}) == std::vector{4});
  for (const char* wrong : {"--rounds=x", "--rounds=3x", "--rounds=0", "--rounds=", "--round=3"}) {
    CAPTURE(wrong);
    CHECK(status_of([&] { program_with({wrong}); }) == 2);
  }
}
