#pragma once
// Measuring on ranks that are threads.

#include <utility>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "support/bind.hpp"
#include "support/interleaved.hpp"

namespace bench {

/// Calls f(ranks) on so many threads, each bound to a core if there are enough. Gives what it gave
/// the first.
template <class F>
std::vector<Timing> on_threads(int ranks, F f) {
  std::vector<Timing> timings;
  shardwise::run_ranks(ranks, [&](shardwise::ThreadCommunicator& all) {
    bind(all.rank(), all.size());
    std::vector<Timing> mine = f(all);
    if (all.rank() == 0) timings = std::move(mine);
  });
  return timings;
}

}  // namespace bench
