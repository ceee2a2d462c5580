#pragma once
// The options of ranks that have a GPU each.

#include <chrono>

#include "shardwise/comm/detail/nccl_library.hpp"

namespace shardwise {

/// Options of an NcclCommunicator; the time-out is the same on all ranks.
struct NcclOptions {
  int device = -1;                ///< -1 for the calling thread's own
  cudaStream_t stream = nullptr;  ///< of that device; the caller keeps it
  /// How long a call may take, and how long the ranks may take to connect. After that time the
  /// communicator is aborted.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

}  // namespace shardwise
