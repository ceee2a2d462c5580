#pragma once
// When a group of ranks is to be given up: what is known of its calls, and what follows from it.
// Knows no thread, no clock and no device.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/ring.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// The calls of one rank in one group, which a stream works off in order.
///
///     state      event                                        becomes    action
///     watching   enqueued, completed                          watching   none
///                tick, the oldest call has been it too long   failed     abort
///                asynchronous error, abort requested          failed     abort
///                released                                     leaving    none; end, if all is done
///     leaving    completed, tick: the last call is done       leaving    end, once
///                tick too late, error, abort requested        failed     abort
///     failed     whatever                                     failed     none
///
/// `abort` and `end` are answered once, to whoever made the event. A call's time begins when it is
/// enqueued or when the one before it is done, whichever is later: so what the stream does before
/// it counts too. After `end` was answered a tick still aborts if ended() does not come in time.
class CallWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  enum class Action { none, abort, end };
  enum class Blame { another_rank, this_rank, library };

  CallWatch(int rank, Duration timeout) : rank_(rank), timeout_(timeout) {}

  /// A call goes onto the stream. Returns its number in the group, from 1 on.
  /// throws  what fail() throws, if the group has failed
  std::uint64_t enqueued(Call call, Time now) {
    call.counts = {};  // the caller's; the number of elements says enough
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
    const std::string limit = " within " + text_of(timeout_);
    if (ending_) return give_up(Blame::another_rank, "the group could not be ended" + limit);
    return give_up(Blame::another_rank,
                   to_string(pending_.front()) + ", call " + std::to_string(oldest()) +
                       " of its group, was not done" + limit +
                       ": another rank has left, has made another call, or takes longer than "
                       "that. The communicator was aborted");
  }

  Action async_error(Blame blame, const std::string& what) {
    return give_up(blame, (pending_.empty() ? std::string()
                                            : to_string(pending_.front()) + ", call " +
                                                  std::to_string(oldest()) + " of its group: ") +
                              what);
  }

  Action abort_requested(const std::string& why) { return give_up(Blame::this_rank, why); }

  /// Nobody will enqueue any more.
  Action released(Time now) {
    leaving_ = true;
    return end_if_idle(now);
  }

  /// What the action `end` asked for is done.
  void ended() { ended_ = true; }

  bool has_failed() const { return failed_; }
  bool has_ended() const { return ended_; }
  bool is_ending() const { return ending_ && !ended_ && !failed_; }
  bool is_idle() const { return pending_.empty(); }
  std::uint64_t last() const { return enqueued_; }
  std::uint64_t done() const { return enqueued_ - pending_.size(); }
  const std::string& reason() const { return reason_; }

  /// To be called after a failure only: the same reason each time, `before` in front of it.
  [[noreturn]] void fail(const std::string& before = {}) const {
    const std::string message = "rank " + std::to_string(rank_) + ": " + before + reason_;
    if (blame_ == Blame::library) throw backend_error(message);
    throw peer_error(message);
  }

 private:
  std::uint64_t oldest() const { return done() + 1; }

  static std::string text_of(Duration duration) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
    return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
  }

  Action give_up(Blame blame, const std::string& why) {
    if (failed_ || ended_) return Action::none;
    reason_ = why;
    blame_ = blame;
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
  Blame blame_ = Blame::this_rank;
  std::string reason_;
};

}  // namespace shardwise::detail
