#pragma once
// The channel for the control messages of all groups.

#include "shardwise/comm/detail/mpi_control_message.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_partings.hpp"

namespace shardwise::detail::mpi {

/// The channel for the control messages of all groups of a world. Each group has two tags of its
/// own, so that a message that no rank has received never reaches another group. For the same
/// reason the communicator of the channel is kept until MPI ends.
class ControlChannel {
 public:
  explicit ControlChannel(MPI_Comm world) : comm_(OwnComm::duplicate(world)), size_(comm_.size()) {
    comm_.keep();
    void* limit = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(comm(), MPI_TAG_UB, &limit, &found), "MPI_Comm_get_attr");
    numbers_ = (found != 0 ? *static_cast<const int*>(limit) : 32767) / 2 / size_;
  }

  MPI_Comm comm() const { return comm_.get(); }

  /// What other ranks tell when they leave groups that this rank has left.
  Partings& partings() { return partings_; }

  ///@{
  /// Do not wait. `message` has to stay until `request` is done.
  void send(const ControlMessage& message, int rank, int tag, MPI_Request* request) const {
    check(MPI_Isend(&message, ControlMessage::bytes, MPI_BYTE, rank, tag, comm(), request),
          "MPI_Isend");
  }
  void receive(ControlMessage& message, int rank, int tag, MPI_Request* request) const {
    check(MPI_Irecv(&message, ControlMessage::bytes, MPI_BYTE, rank, tag, comm(), request),
          "MPI_Irecv");
  }
  ///@}

  /// Does not wait, and says of no error. `message` has to stay as long as MPI runs.
  void send(const ControlMessage& message, int rank, int tag) const {
    MPI_Request sent = MPI_REQUEST_NULL;
    MPI_Isend(&message, ControlMessage::bytes, MPI_BYTE, rank, tag, comm(), &sent);
    if (sent != MPI_REQUEST_NULL) MPI_Request_free(&sent);
  }
  void send_left(int rank, int tag) const {
    static const ControlMessage left(ControlMessage::left);
    send(left, rank, tag);
  }

  /// A number for a group whose first rank is this one; the two tags of the group are made from it.
  /// No other group has it. After some hundred million groups (or 16383 / P, where MPI has few
  /// tags) the oldest numbers are used again.
  int number_of_next_group() {
    next_ = (next_ + 1) % numbers_;
    return next_ * size_ + comm_.rank();
  }

 private:
  OwnComm comm_;
  int size_;
  int numbers_ = 0;
  int next_ = -1;
  Partings partings_;
};

}  // namespace shardwise::detail::mpi
