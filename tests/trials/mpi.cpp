// One rank of a program of trials, as a process: mpi SEED RANKS, where RANKS is the most that may
// be drawn. See trials.cpp.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "shardwise/comm/mpi_ranks.hpp"
#include "trials/interpreter.hpp"
#include "trials/outcome.hpp"
#include "trials/program.hpp"
#include "trials/training.hpp"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const trials::Program program = trials::random_program(
      std::strtoull(argv[1], nullptr, 10), std::atoi(argv[2]), trials::fault_names.size());
  shardwise::run_mpi_ranks(program.ranks, [&](shardwise::MpiCommunicator& world) {
    trials::print(stderr, trials::line_of_process(world.rank(), ::getpid()));
    trials::run_rank<trials::Training<shardwise::MpiCommunicator>>(
        program, world, std::filesystem::temp_directory_path(),
        [&](const trials::Outcome& outcome) {
          trials::print(stdout, trials::line_of(world.rank(), outcome));
        });
  });
  return 0;
}
