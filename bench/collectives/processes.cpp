// All that moves.hpp measures, once, on ranks that are processes, and MPI_Allreduce called by hand:
// mpiexec -n 2 bench_collectives_processes

#include <cstddef>
#include <vector>

#include "collectives/moves.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/comm/mpi_ranks.hpp"

namespace {

void measure_by_hand(shardwise::MpiCommunicator& ranks) {
  bench::Stopwatch<shardwise::MpiCommunicator> watch(ranks);
  for (std::size_t bytes = 64; bytes <= (std::size_t{16} << 20); bytes *= 4) {
    const std::vector<float> in = bench::random_values(ranks.rank(), bytes / sizeof(float));
    std::vector<float> out(in.size());
    watch.time("MPI_Allreduce", bytes, bench::calls_for(bytes), [&] {
      MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    });
  }
}

}  // namespace

int main() {
  shardwise::run_mpi_ranks([](shardwise::MpiCommunicator& ranks) {
    bench::measure(ranks);
    measure_by_hand(ranks);
  });
}
