// One rank of a program of trials, as a process that talks over NCCL: nccl SEED RANKS, where RANKS
// is the most that may be drawn. Its launcher is gpu/on_one_gpu.sh. See trials.cpp.

#include "shardwise/comm/nccl.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/nccl_id_file.hpp"
#include "trials/interpreter.hpp"
#include "trials/on_gpu.hpp"
#include "trials/outcome.hpp"
#include "trials/program.hpp"
#include "trials/training.hpp"

namespace {

using Inner = shardwise::NcclCommunicator;
using Training = trials::Training<trials::Staged<Inner>, trials::OnGpu<Inner>>;

constexpr std::chrono::seconds timeout{3};

void run(const trials::Program& program, const shardwise::LaunchEnvironment& launch) {
  const auto folder = std::filesystem::temp_directory_path();
  const auto device = std::make_shared<trials::GpuDevice>();
  Inner nccl(shardwise::nccl_id_in_file(folder / "id", launch.rank), launch.rank, launch.size,
             {.device = 0,
              .stream = device->backend.stream(),
              .timeout = timeout,
              .checks = shardwise::CheckLevel::communicating});
  trials::Staged<Inner> world(device, nccl);
  trials::run_rank<Training>(program, world, folder, [&](const trials::Outcome& outcome) {
    trials::print(stdout, trials::line_of(launch.rank, outcome));
  });
  nccl.close();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const shardwise::LaunchEnvironment launch = shardwise::read_launch_environment();
  trials::print(stderr, trials::line_of_process(launch.rank, ::getpid()));
  try {
    run(trials::random_program(std::strtoull(argv[1], nullptr, 10), std::atoi(argv[2]),
                               trials::fault_names.size()),
        launch);
    return 0;
  } catch (const std::exception& e) {
    trials::print(stderr, "rank " + std::to_string(launch.rank) + ": " + e.what() + "\n");
  } catch (const trials::Planted&) {
    trials::print(stderr, "rank " + std::to_string(launch.rank) + " threw\n");
  }
  return 1;
}
