#pragma once
// The control messages that ranks send each other before their calls.

#include <cstddef>
#include <cstdint>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/call_record.hpp"

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
  static ControlMessage given_up_for(int who) {
    ControlMessage message(gave_up);
    message.call.root = who;
    return message;
  }
  ControlMessage(std::uint64_t which, const Call& made) : number(which), call(made) {}

  bool has_left() const { return number == left; }
  bool has_given_up() const { return number == gave_up; }
  friend bool operator==(const ControlMessage&, const ControlMessage&) = default;

  static constexpr int bytes = 48;
};
static_assert(sizeof(ControlMessage) == ControlMessage::bytes);

}  // namespace shardwise::detail::mpi
