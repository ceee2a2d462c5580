#pragma once
// The options of ranks that are processes of MPI.

#include <chrono>
#include <climits>
#include <cstddef>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/timeout.hpp"

namespace shardwise {

/// Options of an MpiCommunicator, the same on all ranks.
struct MpiOptions {
  /// Of it and of the groups that it is split into, unless the variable SHARDWISE_CHECKS (off,
  /// local or communicating) overrules it. Below `communicating`, calls that are not equal on all
  /// ranks are undefined behaviour.
  CheckLevel checks = CheckLevel::communicating;
  /// Elements in one call of MPI, at most; its counts are int. Smaller values are for tests.
  std::size_t largest_piece = INT_MAX;
  /// How long a rank waits for others before it gives up; 0 is without end.
  std::chrono::milliseconds timeout = detail::default_timeout();
};

}  // namespace shardwise
