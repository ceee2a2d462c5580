// Every collective and redistribution on ranks that are threads.
//
//     bench_collectives_threads [--ranks=2] [--rounds=31] [options of Google Benchmark]

#include <cstdio>
#include <string>

#include "collectives/comparisons.hpp"
#include "support/on_threads.hpp"
#include "support/program.hpp"

int main(int argc, char** argv) {
  using Ranks = shardwise::ThreadCommunicator;
  const auto wanted = bench::take_option(argc, argv, "--ranks=");
  const int ranks = wanted ? bench::number_of(*wanted) : 2;
  if (ranks < 1) {
    std::fprintf(stderr, "%s: --ranks takes a number of at least 1\n", argv[0]);
    return 2;
  }
  bench::Program program(argc, argv);
  program.note("ranks", std::to_string(ranks) + " threads");
  bench::add_to(program, bench::Comparisons<Ranks>("threads", ranks, {}), ranks,
                [=](auto f) { return bench::on_threads(ranks, f); });
  return program.run();
}
