#pragma once
// Runs a function on ranks that are the processes of an MPI job.

#include <functional>
#include <string>

#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/rank_failure.hpp"
#include "shardwise/comm/detail/rank_function.hpp"
#include "shardwise/comm/mpi.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

namespace detail::mpi {

/// Call it in a catch block. Prints the exception of this rank and ends the job.
[[noreturn]] inline void abort_job() noexcept {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string what;
  try {
    rethrow_with_rank(rank);
  } catch (...) {
    what = reason();
  }
  end_job(what);
}

}  // namespace detail::mpi

/// Calls f(MpiCommunicator&) in every process of the job: all that mpiexec started together, or
/// this one alone. Initializes and finalizes MPI, unless it is initialized already. MPI can be
/// initialized only once in a process; to call this several times, call MPI_Init before.
///
/// If f throws, the whole job ends: rank and cause are printed on stderr, and all processes end
/// with an exit code other than 0, also those that wait.
template <class F>
void run_mpi_ranks(F f, MpiOptions options = {}) {
  static_assert(detail::must_take_rank<F, MpiCommunicator>());
  const detail::mpi::Environment environment;
  try {
    MpiCommunicator ranks(MPI_COMM_WORLD, options);
    std::invoke(f, ranks);
  } catch (...) {
    detail::mpi::abort_job();
  }
}

/// The same for exactly `ranks` ranks. If there is another number of processes, rank 0 reports it
/// and ends the job before f is called.
template <class F>
void run_mpi_ranks(int ranks, F f, MpiOptions options = {}) {
  static_assert(detail::must_take_rank<F, MpiCommunicator>());
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
