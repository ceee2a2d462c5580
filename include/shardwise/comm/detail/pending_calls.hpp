#pragma once
// The calls of a group that are on a stream, and the state machine that decides when the group has
// to be aborted. It uses no thread, no clock and, with another type of event, no device.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/patience.hpp"
#include "shardwise/comm/detail/ring.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// Who has caused a failure; it decides the type of the error.
enum class FailureSource { another_rank, this_rank, library };

/// The calls of one rank in one group, which a stream executes in order, each with an event behind
/// it. The thread of the rank adds calls and a watchdog polls them; each member locks a mutex for a
/// short time. After the first calls nothing is allocated.
///
///     state      what happens                                             becomes
///     watching   a call begins, or is done                                watching
///                released, and all calls are done                         ending
///     ending     ended                                                    ended
///     both       a poll, when the oldest call or the end takes too long   failed
///                an error, an abort requested                             failed
///     failed     aborted                                                  aborted
///
/// All else changes nothing. The owner ends the group while it is ending, and aborts it when it has
/// failed. The time of a call begins when it is enqueued or when the call before it is done,
/// whichever is later: so the work of the stream before it counts too.
///
/// Event has record(stream), which returns a code, 0 for success, and is_reached(), which may throw
/// backend_error.
template <class Event>
class PendingCalls {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class State { watching, ending, ended, failed, aborted };

  PendingCalls(int rank, std::chrono::milliseconds timeout) : rank_(rank), timeout_(timeout) {}

  /// A call begins.
  /// throws  peer_error or backend_error if the group has failed
  void begin(Call call, Time now) {
    const std::lock_guard lock(mutex_);
    call.counts = {};  // they belong to the caller and may be gone later
    collect_done(now);
    refuse(call);
    if (spare_.empty()) {
      spare_.reserve(calls_.size() + 1);  // room for the events of all pending calls
      spare_.push_back(std::make_unique<Event>());
    }
    calls_.reserve_one();
    latest_ = spare_.back().get();
    calls_.push({call, std::move(spare_.back())});
    spare_.pop_back();
    ++begun_;
    if (calls_.size() == 1) since_ = now;
  }

  /// The call that began last is on the stream. Returns the code of Event::record.
  template <class Stream>
  auto recorded(Stream stream) {
    const auto code = latest_->record(stream);
    const std::lock_guard lock(mutex_);
    calls_.back().is_recorded = code == decltype(code){};
    return code;
  }

  /// Throws if the group has failed. The message names `call` as too late, and then the reason.
  void refuse_after_failure(const Call& call) const {
    const std::lock_guard lock(mutex_);
    refuse(call);
  }
  /// Throws the same reason each time, if the group has failed.
  void check_failure() const {
    const std::lock_guard lock(mutex_);
    if (has_failed()) throw_reason();
  }

  /// An error of the oldest call: the group fails with this reason, unless it has failed before.
  void fail(FailureSource source, const std::string& why) {
    const std::lock_guard lock(mutex_);
    fail_oldest(source, why);
  }
  [[noreturn]] void fail_and_throw(FailureSource source, const std::string& why) {
    const std::lock_guard lock(mutex_);
    fail_oldest(source, why);
    throw_reason();
  }
  void request_abort(const std::string& why) {
    const std::lock_guard lock(mutex_);
    give_up(FailureSource::this_rank, why);
  }

  /// Whether all calls are done. Throws if the group has failed.
  bool is_idle(Time now) {
    const std::lock_guard lock(mutex_);
    collect_done(now);
    if (has_failed()) throw_reason();
    return calls_.empty();
  }

  /// No more calls will begin.
  void released(Time now) {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    end_if_idle(now);
  }

  void poll(Time now) {
    const std::lock_guard lock(mutex_);
    collect_done(now);
    give_up_if_late(now);
  }

  State state() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }
  void ended() {
    const std::lock_guard lock(mutex_);
    if (state_ == State::ending) state_ = State::ended;
  }

  void aborted() {
    const std::lock_guard lock(mutex_);
    if (state_ == State::failed) state_ = State::aborted;
  }

  /// Whether the group is released, and ended or aborted.
  bool is_finished() const {
    const std::lock_guard lock(mutex_);
    return is_released_ && (state_ == State::ended || state_ == State::aborted);
  }
  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  struct Pending {
    Call call;
    std::unique_ptr<Event> event;
    bool is_recorded = false;
  };

  // All of these are called with the lock held.

  bool has_failed() const { return state_ == State::failed || state_ == State::aborted; }

  void collect_done(Time now) {
    while (state_ == State::watching && !calls_.empty() && is_done(calls_.front())) {
      spare_.push_back(calls_.pop().event);
      since_ = now;
    }
    end_if_idle(now);
  }

  bool is_done(const Pending& pending) {
    try {
      return pending.is_recorded && pending.event->is_reached();
    } catch (const backend_error& e) {
      fail_oldest(FailureSource::library, e.what());
      return false;
    }
  }

  void end_if_idle(Time now) {
    if (state_ != State::watching || !is_released_ || !calls_.empty()) return;
    state_ = State::ending;
    since_ = now;
  }

  void give_up_if_late(Time now) {
    const bool waits = !has_failed() && (!calls_.empty() || state_ == State::ending);
    if (!waits || now - since_ < timeout_) return;
    const std::string limit = " within " + duration_text(timeout_);
    if (state_ == State::ending)
      return give_up(FailureSource::another_rank, "the group could not be ended" + limit);
    give_up(FailureSource::another_rank,
            oldest() + ", was not done" + limit +
                ": another rank has left, has made another call, or takes longer than that. The "
                "communicator was aborted");
  }

  void fail_oldest(FailureSource source, const std::string& why) {
    give_up(source, calls_.empty() ? why : oldest() + ": " + why);
  }

  void give_up(FailureSource source, const std::string& why) {
    if (has_failed() || state_ == State::ended) return;
    reason_ = why;
    source_ = source;
    state_ = State::failed;
  }

  /// Its name and its number in the group, from 1 on.
  std::string oldest() const {
    return to_string(calls_.front().call) + ", call " + std::to_string(begun_ - calls_.size() + 1) +
           " of its group";
  }

  void refuse(const Call& call) const {
    if (has_failed()) throw_reason(to_string(call) + " comes too late: ");
  }

  [[noreturn]] void throw_reason(const std::string& before = {}) const {
    const std::string message = "rank " + std::to_string(rank_) + ": " + before + reason_;
    if (source_ == FailureSource::library) throw backend_error(message);
    throw peer_error(message);
  }

  const int rank_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  State state_ = State::watching;
  Ring<Pending> calls_;  ///< those that are not done
  std::vector<std::unique_ptr<Event>> spare_;
  Event* latest_ = nullptr;  ///< of the last call; only the thread of the rank uses it
  std::uint64_t begun_ = 0;
  Time since_{};  ///< when the oldest call, or the end, began to wait
  bool is_released_ = false;
  FailureSource source_ = FailureSource::this_rank;
  std::string reason_;
};

}  // namespace shardwise::detail
