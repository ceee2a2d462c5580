#pragma once
// The options of ranks that have a GPU each.

#include <chrono>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"

namespace shardwise {

/// Options of an NcclCommunicator; time-out and checks are the same on all ranks.
struct NcclOptions {
  int device = -1;                ///< -1 for the calling thread's own
  cudaStream_t stream = nullptr;  ///< of that device; the caller keeps it
  /// How long a call may take, and how long the ranks may take to connect. After that time the
  /// communicator is aborted.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// At `communicating` ranks compare their calls, and the host waits in each of them; at `local`
  /// and `off` they do not. The variable SHARDWISE_CHECKS overrules it. The same on all ranks.
  CheckLevel checks = CheckLevel::local;
};

}  // namespace shardwise
