#pragma once
// The options of ranks that are processes of MPI.

#include <climits>
#include <cstddef>

#include "shardwise/comm/check_level.hpp"

namespace shardwise {

/// Options of an MpiCommunicator, the same on all ranks.
struct MpiOptions {
  /// Of it and of the groups that it is split into. Below `communicating`, calls that are not equal
  /// on all ranks are undefined behaviour.
  CheckLevel checks = CheckLevel::communicating;
  /// Elements in one call of MPI, at most; its counts are int. Smaller values are for tests.
  std::size_t largest_piece = INT_MAX;
};

}  // namespace shardwise
