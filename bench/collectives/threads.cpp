// Every collective and redistribution on ranks that are threads.
//
//     bench_collectives_threads [--ranks=2] [--rounds=31] [options of Google Benchmark]

#include <cstdio>
#include <cstring>
#include <string>

#include "collectives/comparisons.hpp"
#include "support/on_threads.hpp"
#include "support/program.hpp"

namespace {

/// Takes `--ranks=N` off the command line: N, or 0 for what is no number of at least 1.
int take_ranks(int& argc, char** argv, int by_default) {
  constexpr const char* option = "--ranks=";
  int ranks = by_default;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    char more = 0;
    if (std::strncmp(argv[i], option, std::strlen(option)) != 0) {
      argv[kept++] = argv[i];
    } else if (std::sscanf(argv[i] + std::strlen(option), "%d%c", &ranks, &more) != 1) {
      ranks = 0;
    }
  }
  argv[argc = kept] = nullptr;
  return ranks < 1 ? 0 : ranks;
}

}  // namespace

int main(int argc, char** argv) {
  using Ranks = shardwise::ThreadCommunicator;
  const int ranks = take_ranks(argc, argv, 2);
  if (ranks == 0) {
    std::fprintf(stderr, "%s: --ranks takes a number of at least 1\n", argv[0]);
    return 2;
  }
  bench::Program program(argc, argv);
  program.note("ranks", std::to_string(ranks) + " threads");
  bench::add_to(program, bench::Comparisons<Ranks>("threads", ranks, {}), ranks,
                [=](auto f) { return bench::on_threads(ranks, f); });
  return program.run();
}
