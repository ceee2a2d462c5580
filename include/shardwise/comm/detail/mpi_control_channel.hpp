#pragma once
// The control messages that ranks send each other before their calls, and the channel for them.

#include <cstddef>
#include <cstdint>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/call_record.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"

namespace shardwise::detail::mpi {

/// The message of a rank to another one before a collective or a message, or when it leaves a
/// group.
struct ControlMessage {
  std::uint64_t number = 0;  ///< of the collective in its group, from 1; or one of the three below
  CallRecord call{};

  static constexpr std::uint64_t left = 0;  ///< its rank has left the group
  /// Its rank knows that another one has left, and makes no more collectives of the group.
  static constexpr std::uint64_t gave_up = UINT64_MAX;
  /// Its rank has heard of different calls.
  static constexpr std::uint64_t differ = UINT64_MAX - 1;

  ControlMessage() = default;
  explicit ControlMessage(std::uint64_t which) : number(which) {}
  /// That its rank gave up because rank `who` of the group has left it.
  static ControlMessage given_up_for(std::size_t who) {
    ControlMessage message(gave_up);
    message.call.root = static_cast<std::int32_t>(who);
    return message;
  }
  ControlMessage(std::uint64_t which, const Call& made) : number(which), call(made) {}

  bool has_left() const { return number == left; }
  bool has_call() const { return number != left && number != gave_up; }
  friend bool operator==(const ControlMessage&, const ControlMessage&) = default;

  static constexpr int bytes = 48;
};
static_assert(sizeof(ControlMessage) == ControlMessage::bytes);

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

  /// Does not wait. `message` has to stay as long as MPI runs.
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
};

}  // namespace shardwise::detail::mpi
