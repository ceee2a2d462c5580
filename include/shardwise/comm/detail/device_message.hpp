#pragma once
// The records that two thread ranks exchange about a message whose data stays on a device.

#include <atomic>
#include <cstdint>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// What two ranks tell each other about a message.
struct DeviceRecord {
  enum class Kind : std::uint8_t {
    message,   ///< from the sender: its data is at `data`
    accepted,  ///< from the receiver: it copies the data
    refused    ///< from the receiver: it expects another message
  };
  Kind kind = Kind::message;
  const void* data = nullptr;
};

/// Whether a rank's message may be copied. A sender that fails while it waits for its receiver
/// takes the message back, or waits until the copy that has begun is ordered.
class Offer {
 public:
  /// By the sender, before each message.
  void make() { state_.store(State::made); }

  /// By the receiver: calls copy() and returns true, unless the message was taken back.
  template <class F>
  bool take(F&& copy) {
    State state = State::made;
    if (!state_.compare_exchange_strong(state, State::taken)) return false;
    const Ended at_end{state_};
    copy();
    return true;
  }

  /// By the sender: whether no copy was begun, and none will be.
  bool take_back() {
    State state = State::made;
    if (state_.compare_exchange_strong(state, State::ended)) return true;
    state_.wait(State::taken);
    return false;
  }

 private:
  enum class State : std::uint8_t { ended, made, taken };

  struct Ended {
    std::atomic<State>& state;
    ~Ended() {
      state.store(State::ended);
      state.notify_all();
    }
  };

  std::atomic<State> state_{State::ended};
};

/// The error on both ranks, world ranks `mine` and `other`, when they do not make the same message.
[[noreturn]] inline void refuse_message(int mine, const Call& call, int other, const Call& theirs) {
  if (call.operation != theirs.operation) {
    const bool sends = call.operation == Operation::send;
    throw collective_error(sends ? describe_message_mismatch(mine, call, other, theirs)
                                 : describe_message_mismatch(other, theirs, mine, call));
  }
  throw collective_error({"rank ", mine, " called ", call, ", rank ", other, " called ", theirs,
                          "; a send of memory of a device waits for its receiver, so one of two "
                          "ranks that send to each other must receive first"});
}

}  // namespace shardwise::detail
