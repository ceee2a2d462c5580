#pragma once
// The calls of a group that are on the stream, each with a CUDA event that is recorded after it.
// The thread of the rank adds calls; the watchdog polls them.

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/call_watch.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/comm/detail/ring.hpp"

namespace shardwise::detail::nccl {

/// Each member locks a mutex for a short time. After the first calls nothing is allocated.
class PendingCalls {
 public:
  using Clock = std::chrono::steady_clock;

  PendingCalls(int rank, std::chrono::milliseconds timeout) : watch_(rank, timeout) {}
  PendingCalls(const PendingCalls&) = delete;
  PendingCalls& operator=(const PendingCalls&) = delete;
  ~PendingCalls() {
    for (; !events_.empty(); events_.pop()) cudaEventDestroy(events_.front().event);
    for (cudaEvent_t event : spare_) cudaEventDestroy(event);
  }

  /// A call begins. Throws what CallWatch::fail() throws.
  void begin(const Call& call) {
    const std::lock_guard lock(mutex_);
    collect_completed();
    if (spare_.empty()) {
      spare_.reserve(events_.size() + 1);  // room for the events of all pending calls
      cudaEvent_t event = nullptr;
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      spare_.push_back(event);
    }
    events_.reserve_one();
    watch_.enqueued(call, Clock::now());
    latest_event_ = spare_.back();
    events_.push({latest_event_, false});
    spare_.pop_back();
  }

  /// The call is on the stream.
  cudaError_t recorded(cudaStream_t stream) {
    const cudaError_t code = cudaEventRecord(latest_event_, stream);
    const std::lock_guard lock(mutex_);
    events_.back().is_recorded = code == cudaSuccess;
    return code;
  }

  /// Throws if the group has failed. The message names `call` as too late, and then the reason.
  void refuse_after_failure(const Call& call) const {
    const std::lock_guard lock(mutex_);
    if (watch_.has_failed()) watch_.fail(to_string(call) + " comes too late: ");
  }
  void check_failure() const {
    const std::lock_guard lock(mutex_);
    if (watch_.has_failed()) watch_.fail();
  }

  /// Makes the group fail with this reason, unless it has failed before.
  [[noreturn]] void fail_and_throw(CallWatch::FailureSource source, const std::string& why) {
    const std::lock_guard lock(mutex_);
    watch_.async_error(source, why);
    watch_.fail();
  }
  void report_error(CallWatch::FailureSource source, const std::string& why) {
    const std::lock_guard lock(mutex_);
    watch_.async_error(source, why);
  }
  void request_abort(const std::string& why) {
    const std::lock_guard lock(mutex_);
    watch_.abort_requested(why);
  }

  /// Whether all calls are done. Throws if the group has failed.
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    collect_completed();
    if (watch_.has_failed()) watch_.fail();
    return watch_.is_idle();
  }

  void released() {
    const std::lock_guard lock(mutex_);
    watch_.released(Clock::now());
    is_released_ = true;
  }
  void ended() {
    const std::lock_guard lock(mutex_);
    watch_.ended();
  }
  void aborted() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
  }

  /// Polls. Whether the group has to take the next step of its orderly end.
  bool tick(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    collect_completed();
    watch_.tick(now);
    return watch_.is_ending();
  }

  bool needs_abort() const {
    const std::lock_guard lock(mutex_);
    return watch_.has_failed() && !is_aborted_;
  }
  bool is_finished() const {
    const std::lock_guard lock(mutex_);
    return is_released_ && (watch_.has_ended() || is_aborted_);
  }
  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return watch_.reason();
  }

 private:
  struct CallEvent {
    cudaEvent_t event = nullptr;
    bool is_recorded = false;
  };

  /// Removes the calls that are done. The caller holds the lock.
  void collect_completed() {
    while (!watch_.has_failed() && !events_.empty() && events_.front().is_recorded) {
      const cudaError_t code = cudaEventQuery(events_.front().event);
      if (code == cudaErrorNotReady) return;
      if (code != cudaSuccess) {
        watch_.async_error(CallWatch::FailureSource::library,
                           "CUDA: cudaEventQuery: " + text_of(code));
        return;
      }
      spare_.push_back(events_.pop().event);
      watch_.completed(Clock::now());
    }
  }

  mutable std::mutex mutex_;
  CallWatch watch_;
  Ring<CallEvent> events_;  ///< one for each call that is not done
  std::vector<cudaEvent_t> spare_;
  cudaEvent_t latest_event_ = nullptr;  ///< of the last call; only the thread of the rank uses it
  bool is_released_ = false;
  bool is_aborted_ = false;
};

}  // namespace shardwise::detail::nccl
