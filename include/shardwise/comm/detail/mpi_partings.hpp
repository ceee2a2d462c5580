#pragma once
// Receives what ranks tell of groups that this rank has left.

#include <algorithm>
#include <cstddef>
#include <deque>

#include "shardwise/comm/detail/mpi_control_message.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"

namespace shardwise::detail::mpi {

/// The partings of other ranks, of groups that this rank has left. MPI keeps a message that nobody
/// receives, and compares each later one with it, so a program that makes many groups would need
/// more memory and time for each. Never waits: each group that ends receives what has come of the
/// groups before it.
class Partings {
 public:
  /// A rank tells with this tag when it leaves.
  void expect(int rank, int tag) { waiting_.push_back({rank, tag, forever}); }
  /// Some rank may tell with this tag when it leaves.
  void expect_perhaps(int rank, int tag) { waiting_.push_back({rank, tag, 8}); }

  /// Receives what has come, for four times as many as a group has added, so that the oldest of
  /// all are looked at soon.
  void receive(MPI_Comm comm, std::size_t added) {
    for (std::size_t left = std::min(waiting_.size(), 4 * added + 2); left > 0 && !waiting_.empty();
         --left) {
      Expected next = waiting_.front();
      waiting_.pop_front();
      if (receive_all(comm, next)) continue;
      if (next.looks != forever && --next.looks == 0) continue;
      waiting_.push_back(next);
    }
  }

 private:
  static constexpr int forever = -1;

  struct Expected {
    int rank;
    int tag;
    int looks;  ///< how often to look for it; or `forever`
  };

  /// Receives what has come; returns whether no more is to come. Before a rank leaves, it may make
  /// calls of which this one knows nothing.
  bool receive_all(MPI_Comm comm, const Expected& of) {
    for (;;) {
      int has_come = 0;
      MPI_Status status;
      if (MPI_Iprobe(of.rank, of.tag, comm, &has_come, &status) != MPI_SUCCESS || has_come == 0)
        return false;
      ControlMessage message;
      MPI_Recv(&message, ControlMessage::bytes, MPI_BYTE, status.MPI_SOURCE, of.tag, comm,
               MPI_STATUS_IGNORE);
      if (!message.has_left()) continue;
      if (of.rank != MPI_ANY_SOURCE) return true;
      std::erase_if(waiting_, [&](const Expected& one) {  // it came by this one
        return one.rank == status.MPI_SOURCE && one.tag == of.tag;
      });
    }
  }

  std::deque<Expected> waiting_;
};

}  // namespace shardwise::detail::mpi
