#pragma once
// The state that all groups of one MpiCommunicator and of its splits share.

#include <cstddef>
#include <memory>
#include <utility>

#include "shardwise/comm/detail/mpi_control_channel.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/patience.hpp"

namespace shardwise::detail::mpi {

/// The ranks of an MpiCommunicator that was made from an MPI_Comm, and of the groups that split
/// made of it. World ranks are numbers in the first group.
struct MpiWorld {
  MpiWorld(std::size_t piece, bool checks, std::shared_ptr<ControlChannel> control,
           Patience::Duration longest_wait)
      : largest_piece(piece),
        checks_arguments(checks),
        channel(std::move(control)),
        timeout(longest_wait) {}

  std::size_t largest_piece;                ///< elements in one call of MPI, at most
  bool checks_arguments;                    ///< whether a rank checks its own arguments
  std::shared_ptr<ControlChannel> channel;  ///< null unless ranks compare their calls
  Patience::Duration timeout;               ///< of a wait for other ranks
  Types types;
};

}  // namespace shardwise::detail::mpi
