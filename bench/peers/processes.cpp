// Ours on ranks that are processes: mpiexec -n 2 peer_processes mlp|output|height float|bf16 FOLDER

#include "peers/mpi_turns.hpp"
#include "peers/ours.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/comm/mpi_ranks.hpp"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  shardwise::run_mpi_ranks(2, [&](shardwise::MpiCommunicator& ranks) {
    if (ranks.rank() == 0) peers::print_mpi_version();
    peers::contend(ranks, arguments, peers::next_turn_of_job);
  });
}
