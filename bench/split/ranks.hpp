#pragma once
// What ranks are: threads of this process or, with SHARDWISE_SPLIT_MPI, processes of an MPI job.
// All other files are the same for both programs.

#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/counting.hpp"
#ifdef SHARDWISE_SPLIT_MPI
#include "shardwise/comm/mpi_ranks.hpp"
#else
#include "support/on_threads.hpp"
#endif

namespace split {

#ifdef SHARDWISE_SPLIT_MPI

using Transport = shardwise::MpiCommunicator;
inline constexpr const char* communicator = "processes";

/// The processes of the job, which are the one number of ranks.
struct Launcher {
  Transport& all;

  std::vector<int> counts() const { return {all.size()}; }
  bool is_first() const { return all.rank() == 0; }

  /// throws   std::runtime_error for another number than that of the processes
  template <class F>
  auto on(int count, F f) const {
    if (count != all.size())
      throw std::runtime_error(
          "--ranks does not ask for the " + std::to_string(all.size()) +
          " processes that were started: leave it out, and start one job for each number of ranks");
    return f(all);
  }
};

/// What f(launcher) returns.
template <class F>
int launch(F f) {
  int status = 0;
  shardwise::run_mpi_ranks([&](Transport& all) { status = f(Launcher{all}); });
  return status;
}

#else

using Transport = shardwise::ThreadCommunicator;
inline constexpr const char* communicator = "threads";

/// Threads, as many as are asked for.
struct Launcher {
  std::vector<int> counts() const { return {1, 2}; }
  bool is_first() const { return true; }

  template <class F>
  auto on(int count, F f) const {
    return bench::on_threads(count, f);
  }
};

/// What f(launcher) returns.
template <class F>
int launch(F f) {
  return f(Launcher{});
}

#endif

/// Writes down what passes through it, so that it can be held against the library's plans.
using Ranks = shardwise::CountingCommunicator<Transport>;

}  // namespace split
