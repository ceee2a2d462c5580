#pragma once
// The ranks on which tests run that know nothing of what a rank is: threads, or, in programs built
// with SHARDWISE_TEST_MPI, the processes of an MPI job, or, with SHARDWISE_TEST_DEVICE, threads
// whose tensors lie in memory that the host cannot touch.
//
//   Ranks                    the communicator of a rank
//   run_on_ranks(P, f)       calls f(Ranks&) on P ranks
//   rank_counts({1, 2, 3})   those of the counts at which each rank can be told what all ranks did
//   any_ranks(3)             such a count, 3 if it can be
//   tell(place, values, f)   calls f(rank, values) for those ranks whose values have to be noted in
//                            the calling one's memory; a collective of the group

#ifdef SHARDWISE_TEST_MPI

#include "support/mpi_ranks.hpp"

#elif defined(SHARDWISE_TEST_DEVICE)

#include "support/device_ranks.hpp"

#else

#include <initializer_list>
#include <utility>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/partition.hpp"

namespace testing {

using Ranks = shardwise::ThreadCommunicator;

template <class F>
void run_on_ranks(int ranks, F&& f) {
  shardwise::run_ranks(ranks, std::forward<F>(f));
}

inline std::vector<int> rank_counts(std::initializer_list<int> counts) { return counts; }
inline int any_ranks(int preferred) { return preferred; }

/// Threads keep their notes in one memory, each its own.
template <class T, class F>
void tell(shardwise::Place place, const std::vector<T>& values, F&& f) {
  f(place.rank, values);
}

}  // namespace testing

#endif
