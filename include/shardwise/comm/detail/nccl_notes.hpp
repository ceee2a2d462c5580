#pragma once
// What a group's user and its watchdog both write down: the calls on the stream, and an event of
// CUDA behind each that tells when it is done.

#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/call_watch.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/comm/detail/ring.hpp"

namespace shardwise::detail::nccl {

/// Locked for a moment by each call. After the first calls nothing is allocated.
class Notes {
 public:
  using Clock = std::chrono::steady_clock;

  Notes(int rank, std::chrono::milliseconds timeout) : watch_(rank, timeout) {}
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;
  ~Notes() {
    for (; !marks_.empty(); marks_.pop()) cudaEventDestroy(marks_.front().event);
    for (cudaEvent_t event : spare_) cudaEventDestroy(event);
  }

  /// A call begins. Throws what CallWatch::fail() throws.
  void begin(const Call& call) {
    const std::lock_guard lock(mutex_);
    reap();
    if (spare_.empty()) {
      spare_.reserve(marks_.size() + 1);  // room for all that there will be
      cudaEvent_t event = nullptr;
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      spare_.push_back(event);
    }
    marks_.reserve_one();
    watch_.enqueued(call, Clock::now());
    latest_ = spare_.back();
    marks_.push({latest_, false});
    spare_.pop_back();
  }

  /// It is on the stream.
  cudaError_t recorded(cudaStream_t stream) {
    const cudaError_t code = cudaEventRecord(latest_, stream);
    const std::lock_guard lock(mutex_);
    marks_.back().is_recorded = code == cudaSuccess;
    return code;
  }

  /// Throws if the group has failed; in front of the reason comes which call came too late.
  void refuse_after_failure(const Call& call) const {
    const std::lock_guard lock(mutex_);
    if (watch_.has_failed()) watch_.fail(to_string(call) + " comes too late: ");
  }
  void check_failure() const {
    const std::lock_guard lock(mutex_);
    if (watch_.has_failed()) watch_.fail();
  }

  /// The group fails by what this rank has found, unless it has before.
  [[noreturn]] void lose(CallWatch::Blame blame, const std::string& why) {
    const std::lock_guard lock(mutex_);
    watch_.async_error(blame, why);
    watch_.fail();
  }
  void error(CallWatch::Blame blame, const std::string& why) {
    const std::lock_guard lock(mutex_);
    watch_.async_error(blame, why);
  }
  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    watch_.abort_requested(why);
  }

  /// Whether all calls are done. Throws if the group has failed.
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    reap();
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

  /// Whether it is time for the next step of an orderly end.
  bool tick(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    reap();
    watch_.tick(now);
    return watch_.is_ending();
  }

  bool is_lost() const {
    const std::lock_guard lock(mutex_);
    return watch_.has_failed() && !is_aborted_;
  }
  bool is_gone() const {
    const std::lock_guard lock(mutex_);
    return is_released_ && (watch_.has_ended() || is_aborted_);
  }
  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return watch_.reason();
  }

 private:
  struct Mark {
    cudaEvent_t event = nullptr;
    bool is_recorded = false;
  };

  /// Notes what is done. Under the lock.
  void reap() {
    while (!watch_.has_failed() && !marks_.empty() && marks_.front().is_recorded) {
      const cudaError_t code = cudaEventQuery(marks_.front().event);
      if (code == cudaErrorNotReady) return;
      if (code != cudaSuccess) {
        watch_.async_error(CallWatch::Blame::library, "CUDA: cudaEventQuery: " + text_of(code));
        return;
      }
      spare_.push_back(marks_.pop().event);
      watch_.completed(Clock::now());
    }
  }

  mutable std::mutex mutex_;
  CallWatch watch_;
  Ring<Mark> marks_;  ///< one for each call that is not done
  std::vector<cudaEvent_t> spare_;
  cudaEvent_t latest_ = nullptr;  ///< of the last mark; the user's thread alone looks at it
  bool is_released_ = false;
  bool is_aborted_ = false;
};

}  // namespace shardwise::detail::nccl
