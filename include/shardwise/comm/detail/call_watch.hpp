#pragma once
// The state machine that decides when a group of ranks has to be aborted. It uses no thread, no
// clock and no device.

#include <chrono>
#include <cstdint>
#include <string>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/patience.hpp"
#include "shardwise/comm/detail/ring.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// The calls of one rank in one group, which a stream executes in order.
///
///     state      event                                        becomes    action
///     watching   enqueued, completed                          watching   none
///                tick, the oldest call waits too long         failed     abort
///                asynchronous error, abort requested          failed     abort
///                released                                     leaving    none; end, if all is done
///     leaving    completed, tick: the last call is done       leaving    end, once
///                tick too late, error, abort requested        failed     abort
///     failed     any event                                    failed     none
///
/// `abort` and `end` are returned once, by the event that causes them. The time of a call begins
/// when it is enqueued or when the call before it is done, whichever is later: so the work of the
/// stream before it counts too. After `end` a tick still aborts if ended() is not called in time.
class CallWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  enum class Action { none, abort, end };
  enum class FailureSource { another_rank, this_rank, library };

  CallWatch(int rank, Duration timeout) : rank_(rank), timeout_(timeout) {}

  /// A call goes onto the stream. Returns its number in the group, from 1 on.
  /// throws  what fail() throws, if the group has failed
  std::uint64_t enqueued(Call call, Time now) {
    call.counts = {};  // they belong to the caller and may be gone later
    if (failed_) fail(to_string(call) + " comes too late: ");
    pending_.push(call);
    if (pending_.size() == 1) since_ = now;
    return ++enqueued_;
  }

  /// The oldest call is done.
  Action completed(Time now) {
    pending_.pop();
    since_ = now;
    return end_if_idle(now);
  }

  Action tick(Time now) {
    const bool waits = !pending_.empty() || ending_;
    if (failed_ || ended_ || !waits || now - since_ < timeout_) return end_if_idle(now);
    const std::string limit =
        " within " + duration_text(std::chrono::duration_cast<Patience::Duration>(timeout_));
    if (ending_)
      return give_up(FailureSource::another_rank, "the group could not be ended" + limit);
    return give_up(FailureSource::another_rank,
                   to_string(pending_.front()) + ", call " + std::to_string(oldest()) +
                       " of its group, was not done" + limit +
                       ": another rank has left, has made another call, or takes longer than "
                       "that. The communicator was aborted");
  }

  Action async_error(FailureSource source, const std::string& what) {
    return give_up(source, (pending_.empty() ? std::string()
                                             : to_string(pending_.front()) + ", call " +
                                                   std::to_string(oldest()) + " of its group: ") +
                               what);
  }

  Action abort_requested(const std::string& why) { return give_up(FailureSource::this_rank, why); }

  /// No more calls will be enqueued.
  Action released(Time now) {
    leaving_ = true;
    return end_if_idle(now);
  }

  /// The action `end` is done.
  void ended() { ended_ = true; }

  bool has_failed() const { return failed_; }
  bool has_ended() const { return ended_; }
  bool is_ending() const { return ending_ && !ended_ && !failed_; }
  bool is_idle() const { return pending_.empty(); }
  std::uint64_t last() const { return enqueued_; }
  std::uint64_t done() const { return enqueued_ - pending_.size(); }
  const std::string& reason() const { return reason_; }

  /// Only after a failure. Throws the same reason each time, after the text `before`.
  [[noreturn]] void fail(const std::string& before = {}) const {
    const std::string message = "rank " + std::to_string(rank_) + ": " + before + reason_;
    if (source_ == FailureSource::library) throw backend_error(message);
    throw peer_error(message);
  }

 private:
  std::uint64_t oldest() const { return done() + 1; }

  Action give_up(FailureSource source, const std::string& why) {
    if (failed_ || ended_) return Action::none;
    reason_ = why;
    source_ = source;
    failed_ = true;
    return Action::abort;
  }

  Action end_if_idle(Time now) {
    if (!leaving_ || failed_ || ending_ || !pending_.empty()) return Action::none;
    ending_ = true;
    since_ = now;
    return Action::end;
  }

  int rank_;
  Duration timeout_;
  Ring<Call> pending_;
  std::uint64_t enqueued_ = 0;
  Time since_{};
  bool leaving_ = false;
  bool ending_ = false;
  bool ended_ = false;
  bool failed_ = false;
  FailureSource source_ = FailureSource::this_rank;
  std::string reason_;
};

}  // namespace shardwise::detail
