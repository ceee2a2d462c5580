#pragma once
// The records that two thread ranks exchange about a message whose data stays on a device.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// From the sender: its call, and where the data is.
struct DeviceMessage {
  const void* data = nullptr;
  Call call{};
};

/// From the receiver: its call, and whether the message was the expected one.
struct Acknowledgement {
  bool accepted = false;
  Call call{};
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

template <class T>
std::span<const std::uint8_t> bytes_of(const T& object) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const std::uint8_t*>(&object), sizeof object};
}

template <class T>
std::span<std::uint8_t> writable_bytes_of(T& object) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<std::uint8_t*>(&object), sizeof object};
}

/// The error on both ranks when the message is not the one that the receiver expects.
[[noreturn]] inline void refuse_message(const Call& sent, const Call& received) {
  throw collective_error({"one rank called ", sent, ", the other ", received, message_advice});
}

}  // namespace shardwise::detail
