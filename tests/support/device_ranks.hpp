#pragma once
// For support/ranks.hpp: thread ranks whose collectives take far memory alone. What a test passes
// in is staged there and back.

#include <initializer_list>
#include <memory>
#include <vector>

#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/partition.hpp"
#include "support/far.hpp"
#include "support/staged_communicator.hpp"

namespace testing {

using Ranks = StagedCommunicator<shardwise::DeviceThreadCommunicator<Far>, Far>;

static_assert(shardwise::Communicator<Ranks>);

template <class F>
void run_on_ranks(int ranks, F&& f) {
  const auto memory = std::make_shared<FarMemory>();
  shardwise::run_ranks(ranks, [&](shardwise::ThreadCommunicator& threads) {
    const auto device = std::make_shared<StagingDevice<Far>>(memory);
    Ranks staged(device, shardwise::DeviceThreadCommunicator<Far>(threads, device->backend));
    f(staged);
  });
}

inline std::vector<int> rank_counts(std::initializer_list<int> counts) { return counts; }
inline int any_ranks(int preferred) { return preferred; }

/// Threads keep their notes in one memory, each its own.
template <class T, class F>
void tell(shardwise::Place place, const std::vector<T>& values, F&& f) {
  f(place.rank, values);
}

}  // namespace testing
