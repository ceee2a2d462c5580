// All that moves.hpp measures, once, on ranks that are threads: bench_collectives_threads [ranks]

#include <cstdlib>

#include "collectives/moves.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  shardwise::run_ranks(ranks, [](shardwise::ThreadCommunicator& all) { bench::measure(all); });
}
