#pragma once
// The ranks of a program: threads of one process, or, in a program built with
// SHARDWISE_EXAMPLE_MPI, the processes of an MPI job. The rest of the program is the same.

#ifdef SHARDWISE_EXAMPLE_MPI

#include <utility>

#include "shardwise/comm/mpi_ranks.hpp"

namespace example {

using Ranks = shardwise::MpiCommunicator;

/// The job must have exactly `ranks` processes.
template <class F>
void launch(int ranks, F&& f) {
  shardwise::run_mpi_ranks(ranks, std::forward<F>(f));
}

}  // namespace example

#else

#include <utility>

#include "shardwise/comm/thread_ranks.hpp"

namespace example {

using Ranks = shardwise::ThreadCommunicator;

template <class F>
void launch(int ranks, F&& f) {
  shardwise::run_ranks(ranks, std::forward<F>(f));
}

}  // namespace example

#endif
