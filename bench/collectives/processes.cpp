// Every collective and redistribution on ranks that are processes; beside all_reduce,
// reduce_scatter and all_gather MPI's own, called by hand.
//
//     mpiexec -n 2 bench_collectives_processes [--rounds=31] [options of Google Benchmark]

#include <mpi.h>

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/comparisons.hpp"
#include "shardwise/comm/mpi_ranks.hpp"
#include "support/program.hpp"

namespace {

using Ranks = shardwise::MpiCommunicator;

int int_of(std::size_t n) { return static_cast<int>(n); }

void mpi_all_reduce(Ranks&, bench::Buffers& b) {
  MPI_Allreduce(b.in.data(), b.out.data(), int_of(b.in.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void mpi_all_gather(Ranks&, bench::Buffers& b) {
  const int block = int_of(b.in.size());
  MPI_Allgather(b.in.data(), block, MPI_FLOAT, b.out.data(), block, MPI_FLOAT, MPI_COMM_WORLD);
}

void mpi_reduce_scatter(Ranks&, bench::Buffers& b) {
  MPI_Reduce_scatter_block(b.in.data(), b.out.data(), int_of(b.out.size()), MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD);
}

/// What a program without this library would call.
std::vector<bench::Way<Ranks>> by_hand(shardwise::Operation what) {
  const auto way = [&](auto f) {
    return std::vector{bench::Way<Ranks>{"MPI by hand", bench::by<Ranks>(what, f)}};
  };
  if (what == shardwise::Operation::all_reduce) return way(mpi_all_reduce);
  if (what == shardwise::Operation::all_gather) return way(mpi_all_gather);
  if (what == shardwise::Operation::reduce_scatter) return way(mpi_reduce_scatter);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  int status = 0;
  const auto compare = [&](Ranks& ranks) {
    const bool is_first = ranks.rank() == 0;
    if (!is_first) bench::take_option(argc, argv, "--benchmark_out=");  // one process writes it
    bench::Program program(argc, argv);
    program.note("ranks", std::to_string(ranks.size()) + " processes");
    const bench::Comparisons<Ranks> comparisons("processes", ranks.size(), by_hand);
    bench::add_to(program, comparisons, ranks.size(), [&](auto f) { return f(ranks); });
    status = program.run(!is_first);
  };
  // As MPI by hand: nothing goes ahead of a collective to compare calls.
  shardwise::run_mpi_ranks(compare, {.checks = shardwise::CheckLevel::local});
  return status;
}
