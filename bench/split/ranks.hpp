#pragma once
// What ranks are: threads of this process or, with SHARDWISE_SPLIT_MPI, processes of an MPI job.
// All other files are the same for both programs.

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/counting.hpp"

#ifdef SHARDWISE_SPLIT_MPI

#include "shardwise/comm/mpi_ranks.hpp"

namespace split {

using Transport = shardwise::MpiCommunicator;
inline constexpr const char* communicator = "processes";
inline constexpr const char* program = "shardwise-split-mpi";
inline const std::vector<int> default_counts{};  // as many as there are processes

/// Calls f(ranks) in each process. MPI starts once, so all processes are the one number of ranks.
/// throws   std::runtime_error, on rank 0, if `counts` asks for another number
template <class F>
void launch(const std::vector<int>& counts, F f) {
  shardwise::run_mpi_ranks([&](Transport& all) {
    const bool fits = counts.empty() || (counts.size() == 1 && counts[0] == all.size());
    if (!fits && all.rank() == 0)
      throw std::runtime_error(
          "--ranks does not ask for the " + std::to_string(all.size()) +
          " processes that were started: leave it out, and start one job for each number of ranks "
          "(mpiexec -n 2 shardwise-split-mpi --resume -o all.csv ...)");
    if (!fits) return all.barrier();  // until the first one has ended the job
    f(all);
  });
}

}  // namespace split

#else

#include "shardwise/comm/thread_ranks.hpp"
#include "support/bind.hpp"

namespace split {

using Transport = shardwise::ThreadCommunicator;
inline constexpr const char* communicator = "threads";
inline constexpr const char* program = "shardwise-split";
inline const std::vector<int> default_counts{1, 2};

/// Calls f(ranks) on so many threads, each bound to a core if there are enough, for each of the
/// counts in turn.
template <class F>
void launch(const std::vector<int>& counts, F f) {
  for (const int count : counts) {
    shardwise::run_ranks(count, [&](Transport& ranks) {
      bench::bind(ranks.rank(), ranks.size());
      f(ranks);
    });
  }
}

}  // namespace split

#endif

namespace split {

/// Writes down what passes through it, so that it can be held against the library's plans.
using Ranks = shardwise::CountingCommunicator<Transport>;

}  // namespace split
