#pragma once
// A communicator of NCCL, seen from one rank. Its calls are enqueued on the stream of the rank or
// on the communication stream, and a watchdog polls them.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/comm/detail/nccl_event.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/comm/detail/nccl_stream.hpp"
#include "shardwise/comm/detail/pending_calls.hpp"
#include "shardwise/comm/detail/watchdog.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

/// The return codes of NCCL and CUDA for the parts of one call. The first error is kept.
class Results {
 public:
  void operator()(ncclResult_t code) {
    if (code != ncclSuccess && (nccl_ == ncclSuccess || nccl_ == ncclInProgress)) nccl_ = code;
  }
  void operator()(cudaError_t code) {
    if (cuda_ == cudaSuccess) cuda_ = code;
  }
  ncclResult_t nccl() const { return nccl_; }
  cudaError_t cuda() const { return cuda_; }

 private:
  ncclResult_t nccl_ = ncclSuccess;
  cudaError_t cuda_ = cudaSuccess;
};

/// Waits before the next poll of NCCL, longer after many attempts.
inline void pause_between_polls(int attempt) {
  if (attempt < 100)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(attempt < 1000 ? 20 : 200));
}

/// Belongs to a watchdog, which aborts and destroys it. The rank makes calls from one thread, and
/// the thread of the watchdog polls them. A lock protects NCCL's communicator and is held during
/// calls of NCCL, which return at once because the communicator is not blocking.
class NcclGroup {
 public:
  using Clock = std::chrono::steady_clock;
  using CallState = PendingCalls<StreamEvent>::State;

  struct Settings {
    int device = 0;
    cudaStream_t stream = nullptr;
    std::chrono::milliseconds timeout{};
    bool owns = true;  ///< whether NCCL's communicator is ended with the group
    /// Made with the group, unless split made the group: then it is that of the larger group.
    std::shared_ptr<CommunicationStream> communication = nullptr;
    CheckLevel checks = CheckLevel::local;
    int world_rank = -1;  ///< in the first group, of which split made this one; -1 in that itself
  };

  /// Not yet connected: call connect(), adopt() or split_into() of another group next.
  explicit NcclGroup(Settings settings) : settings_(std::move(settings)) {}
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() {
    if (settings_.owns && comm_ != nullptr) ncclCommAbort(comm_);
    cudaFree(scratch_);
  }

  void connect(int rank, int size, const ncclUniqueId& id) {
    const OnDevice on(settings_.device);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    become_ready(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "ncclCommInitRankConfig");
  }
  void adopt(ncclComm_t comm) {
    comm_ = comm;
    become_ready(ncclInProgress, "ncclCommGetAsyncError");
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Settings& settings() const { return settings_; }
  /// Memory of the device, of `scratch_bytes` for each rank and once more.
  std::byte* scratch() const { return scratch_; }
  static constexpr std::size_t scratch_bytes = sizeof(CallText);

  bool compares_calls() const { return settings_.checks == CheckLevel::communicating; }
  /// The number of the next collective that is compared.
  std::uint64_t next_compared() { return ++compared_; }
  /// Whether calls are captured into a CUDA graph.
  bool is_capturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(settings_.stream, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }

  /// Enqueues a call: f(results, comm, stream) makes it, within one group call of NCCL.
  /// throws  what check_failure() throws, if the group has failed; if NCCL refuses the call,
  ///         the group fails
  template <class F>
  void issue(const Call& call, F&& f) {
    const OnDevice on(settings_.device);
    require(settings_.communication->join());
    enqueue(settings_.stream, call, f);
  }

  /// The same on the communication stream, after all work that is on the stream of the rank.
  template <class F>
  UnderWay begin(const Call& call, F&& f) {
    const OnDevice on(settings_.device);
    require(settings_.communication->fork());
    UnderWay begun(settings_.communication);
    enqueue(settings_.communication->get(), call, f);
    return begun;
  }

  /// Enqueues captured calls by launch(). They are watched as one call.
  /// throws  what launch() throws, and what issue() does
  template <class Launch>
  void issue_recorded(Launch&& launch) {
    const OnDevice on(settings_.device);
    require(settings_.communication->join());
    pending_calls_->begin(Call{Operation::recorded}, Clock::now());
    try {
      launch();
    } catch (...) {
      // The watchdog still waits for what is on the stream.
      pending_calls_->recorded(settings_.stream);
      throw;
    }
    require(pending_calls_->recorded(settings_.stream));
  }

  /// Returns when all calls so far are done.
  void wait() {
    const OnDevice on(settings_.device);
    for (int attempt = 0; !pending_calls_->is_idle(Clock::now()); ++attempt)
      pause_between_polls(attempt);
  }

  void check_failure() const { pending_calls_->check_failure(); }

  /// Connects `part`, a new group, to the ranks of this group with the same color.
  void split_into(NcclGroup& part, int color, int key) {
    issue(Call{Operation::split}, [&](Results& results, ncclComm_t comm, cudaStream_t) {
      results(ncclCommSplit(comm, color, key, &split_result_, nullptr));
    });
    wait();
    part.comm_ = std::exchange(split_result_, nullptr);
    part.become_ready(ncclInProgress, "ncclCommSplit");
  }

  /// No more calls follow: the watchdog ends the group when all calls are done.
  void release() { pending_calls_->released(Clock::now()); }

  // --- what the watchdog calls
  // --------------------------------------------------------------------

  WatchStatus poll(Clock::time_point now) {
    const OnDevice on(settings_.device);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // another thread may be capturing
    cudaThreadExchangeStreamCaptureMode(&mode);
    pending_calls_->poll(now);
    poll_error();
    if (pending_calls_->state() == CallState::ending) continue_ending();
    if (pending_calls_->state() == CallState::failed) return WatchStatus::failed;
    return pending_calls_->is_finished() ? WatchStatus::finished : WatchStatus::active;
  }

  std::string reason() const { return pending_calls_->reason(); }
  void fail(const std::string& why) { pending_calls_->request_abort(why); }

  /// In one group call of NCCL, which tells all of them to stop before it waits for any. If they
  /// were aborted one by one, the first could wait for a kernel of the next on the same stream.
  static void abort(std::span<const std::unique_ptr<NcclGroup>> all) {
    ncclGroupStart();
    for (const std::unique_ptr<NcclGroup>& group : all) group->abort();
    ncclGroupEnd();
  }

 private:
  void require(cudaError_t code) {
    if (code != cudaSuccess)
      pending_calls_->fail_and_throw(FailureSource::library, "CUDA: " + text_of(code));
  }

  template <class F>
  void enqueue(cudaStream_t stream, const Call& call, F&& f) {
    const bool is_watched = !is_capturing();
    if (is_watched)
      pending_calls_->begin(call, Clock::now());
    else
      pending_calls_->refuse_after_failure(call);
    Results results;
    {
      const std::lock_guard lock(mutex_);
      if (comm_ != nullptr) {
        results(ncclGroupStart());
        f(results, comm_, stream);
        results(ncclGroupEnd());
      }
    }
    // The watchdog does not see a captured call, but NCCL may wait for other ranks in it.
    wait_until_enqueued(results.nccl(),
                        is_watched ? Clock::time_point::max() : Clock::now() + settings_.timeout);
    if (is_watched) results(pending_calls_->recorded(stream));
    require(results.cuda());
  }

  /// Waits until NCCL has enqueued the call.
  void wait_until_enqueued(ncclResult_t result, Clock::time_point until) {
    for (int attempt = 0; result == ncclInProgress; ++attempt) {
      check_failure();
      if (Clock::now() > until)
        pending_calls_->fail_and_throw(
            FailureSource::another_rank,
            "a call could not be recorded within the time-out: another rank does not "
            "record it");
      if (attempt > 0) pause_between_polls(attempt);
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) continue;
      if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
    }
    if (result != ncclSuccess)
      pending_calls_->fail_and_throw(failure_source(result), text_of(result, nullptr, "a call"));
    check_failure();
  }

  /// Reads the asynchronous error of NCCL, unless another thread is calling NCCL.
  void poll_error() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    ncclResult_t result = ncclSuccess;
    if (!lock || comm_ == nullptr || ncclCommGetAsyncError(comm_, &result) != ncclSuccess) return;
    if (result == ncclSuccess || result == ncclInProgress) return;
    pending_calls_->fail(failure_source(result), text_of(result, comm_, "its asynchronous part"));
  }

  /// One step of the orderly end of the group. No step blocks.
  void continue_ending() {
    const std::lock_guard lock(mutex_);
    if (settings_.owns && comm_ != nullptr) {
      ncclResult_t result = ncclSuccess;
      if (!std::exchange(is_finalized_, true)) ncclCommFinalize(comm_);
      ncclCommGetAsyncError(comm_, &result);
      if (result != ncclSuccess) return;
      ncclCommDestroy(comm_);
    }
    comm_ = nullptr;
    pending_calls_->ended();
  }

  /// The watchdog waits only about 1 s for the lock, because a call of NCCL may hang while it holds
  /// it.
  void abort() {
    std::unique_lock lock(mutex_, std::defer_lock);
    for (int i = 0; i < 1000 && !lock.try_lock(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
    pending_calls_->aborted();
  }

  /// Waits for NCCL, at most for the time-out, and then reads rank and size.
  void become_ready(ncclResult_t result, const char* call) {
    const OnDevice on(settings_.device);
    const auto until = Clock::now() + settings_.timeout;
    for (int attempt = 0; result == ncclInProgress && Clock::now() < until; ++attempt) {
      if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
      pause_between_polls(attempt);
    }
    if (result != ncclSuccess) {
      const std::string why =
          text_of(result, comm_, call) +
          ". Every rank has to call it once, with matching arguments, on a GPU of its own and with "
          "the same version of NCCL. NCCL_DEBUG=INFO prints what NCCL does";
      if (result != ncclInProgress && result != ncclRemoteError) throw backend_error(why);
      throw peer_error({"NCCL: ", call, " did not connect the ranks within ",
                        settings_.timeout.count(), " ms. ", why});
    }
    check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank");
    check(ncclCommCount(comm_, &size_), "ncclCommCount");
    if (settings_.world_rank < 0) settings_.world_rank = rank_;
    pending_calls_.emplace(rank_, settings_.timeout);
    const std::size_t bytes = (static_cast<std::size_t>(size_) + 1) * scratch_bytes;
    check(cudaMalloc(reinterpret_cast<void**>(&scratch_), bytes), "cudaMalloc");
    if (settings_.communication == nullptr)
      settings_.communication =
          std::make_shared<CommunicationStream>(settings_.device, settings_.stream);
  }

  Settings settings_;
  int rank_ = 0;
  int size_ = 1;
  std::byte* scratch_ = nullptr;
  std::uint64_t compared_ = 0;
  std::optional<PendingCalls<StreamEvent>> pending_calls_;  ///< since the group is connected

  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;          ///< null when aborted or ended
  ncclComm_t split_result_ = nullptr;  ///< NCCL may write it after the call of split has returned
  bool is_finalized_ = false;
};

}  // namespace shardwise::detail::nccl
