#pragma once
// Runs a function on ranks that are the processes of an MPI job.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/rank_failure.hpp"
#include "shardwise/comm/mpi.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

namespace detail::mpi {

/// To be called in a catch block. Says what left this rank, and ends the job.
[[noreturn]] inline void abort_job() noexcept {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string what;
  try {
    rethrow_with_rank(rank);
  } catch (...) {
    what = reason();
  }
  std::fprintf(stderr, "%s\n", what.c_str());
  std::fflush(nullptr);
  // MPICH's launcher drops what it has not read yet of the ranks' output when a job is aborted.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();  // MPI_Abort does not return
}

}  // namespace detail::mpi

/// Calls f(MpiCommunicator&) in every process of the job: those that mpiexec started together, or
/// this one alone. Starts MPI, and ends it again, unless it runs already. MPI starts once in a
/// process, so this runs once too, unless the caller starts MPI.
///
/// An exception that leaves f ends the whole job: rank and cause go to stderr, and all processes
/// are ended with an exit code other than 0, wherever they wait.
template <class F>
void run_mpi_ranks(F f, MpiOptions options = {}) {
  const detail::mpi::Session session;
  try {
    MpiCommunicator ranks(MPI_COMM_WORLD, options);
    std::invoke(f, ranks);
  } catch (...) {
    detail::mpi::abort_job();
  }
}

/// The same for exactly `ranks` ranks. If there is another number of processes, the first says so
/// and ends the job before f is called.
template <class F>
void run_mpi_ranks(int ranks, F f, MpiOptions options = {}) {
  run_mpi_ranks(
      [&](MpiCommunicator& all) {
        if (all.size() != ranks && all.rank() == 0)
          throw argument_error({"run_mpi_ranks: ", ranks, " ranks were asked for, but ", all.size(),
                                all.size() == 1 ? " process was" : " processes were",
                                " started; start as many as there are ranks, with mpiexec -n ",
                                ranks});
        if (all.size() != ranks) return all.barrier();  // until the first one has ended the job
        std::invoke(f, all);
      },
      options);
}

}  // namespace shardwise
