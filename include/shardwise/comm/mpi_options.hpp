#pragma once
// What one chooses for ranks that are processes of MPI.

#include <climits>
#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise {

/// How much an MpiCommunicator looks at calls before it makes them. MPI itself reports little: of
/// calls that differ between ranks, most give wrong numbers or wait without end.
enum class CheckLevel {
  off,           ///< nothing: a wrong call is undefined behaviour
  local,         ///< what a rank can see alone: shape_error and argument_error, as in the contract
  communicating  ///< also, ahead of each collective, whether all ranks make the same one
};

/// Options of an MpiCommunicator, the same on all ranks.
struct MpiOptions {
  CheckLevel checks = CheckLevel::local;  ///< of it and of the groups that it is split into
  /// Elements that go into one call of MPI, whose counts are int. Smaller ones are for tests.
  std::size_t largest_piece = INT_MAX;
};

}  // namespace shardwise
