// The perceptron as one would write it for two processes without any library of layers: oneDNN's
// products of half of the hidden features each, and MPI_Allreduce.
//
//     mpiexec -n 2 peer_mpi_by_hand FOLDER

#include <mpi.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include "peers/mpi_turns.hpp"
#include "peers/perceptron_by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || size != 2)
      throw std::runtime_error("usage: mpiexec -n 2 peer_mpi_by_hand FOLDER");
    const shardwise::detail::onednn::ThreadLimit one_thread(1);
    if (rank == 0) peers::print_mpi_version();
    peers::Part half(rank, size, argv[1]);
    std::vector<float>& y = half.by_onednn.y;
    const auto run = [&](bool training) {
      half.forward(training);
      MPI_Allreduce(MPI_IN_PLACE, y.data(), static_cast<int>(y.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
      if (training) half.by_onednn.backward();
    };
    half.require_results(run, rank == 0);
    peers::take_turns(rank == 0, peers::next_turn_of_job, run);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
