// The judge of trials: whom a text names, and what a run of processes says.

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "trials/judge.hpp"

namespace {

struct Blamed {
  std::string_view text;
  bool names, singles_out;  // rank 1
};

}  // namespace

TEST_CASE("trials: a text names the rank at fault, or sets it apart") {
  const Blamed texts[] = {
      {"in barrier(): rank 1 has left", true, true},
      {"rank 0 called barrier; rank 1 called all_gather", true, false},
      {"ranks 0, 2 called barrier; rank 1 called all_gather", true, true},
      {"rank 0 has waited 3 s for rank 1; rank 1 has waited 3 s for rank 1", true, true},
      {"rank 1 has waited 3 s for rank 0", false, false},
      {"in barrier(), collective 2 of ranks 0, 1: rank 0 has left", false, false},
      {"rank 2 threw: in barrier(): rank 1 has left", true, true},
      {"rank 1 threw: the cause", true, true},
      {"ranks 0, 1 wait", true, false},
      {"ranks 0 to 3 called barrier; rank 4 called all_gather", true, false},
      {"ranks 0, 2 to 5 called barrier; rank 1 called all_gather", true, true},
      {"rank 11 has left", false, false},
      {"ranking 1", false, false},
      {"", false, false}};
  for (const Blamed& one : texts) {
    CAPTURE(one.text);
    const trials::Blame blame(one.text);
    CHECK(blame.names(1) == one.names);
    CHECK(blame.singles_out(1) == one.singles_out);
  }
}

TEST_CASE(
    "trials: of processes, who speaks is not named by that, and a process stands for its rank") {
  const auto verdict = [](const std::string& said) {
    trials::Program program;
    program.culprit = 1;
    program.fault = trials::Fault::skips;
    trials::Ending ending;
    ending.outcomes.resize(3);
    ending.failed = true;
    ending.is_of_processes = true;
    ending.processes = {{0, 100}, {1, 101}};
    ending.said = said;
    return trials::judge(program, ending);
  };
  CHECK(!verdict("rank 1: in barrier(): the cause\n").names_culprit);
  CHECK(verdict("rank 0: in barrier(): rank 1 has left\n").names_culprit);
  CHECK(verdict("process 101 ended by signal 9\n").singles_out);
  CHECK(!verdict("process 1012 ended by signal 9\n").names_culprit);
  CHECK(!verdict("process 100 ended by signal 9\nrank 0 has waited\n").names_culprit);
  CHECK(verdict("").every_rank_told);
}
