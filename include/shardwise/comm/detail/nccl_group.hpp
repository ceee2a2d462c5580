#pragma once
// A communicator of NCCL, seen from one rank: its calls go onto the rank's stream, or beside it,
// and are watched.

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
#include "shardwise/comm/detail/call_watch.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/comm/detail/nccl_notes.hpp"
#include "shardwise/comm/detail/nccl_stream.hpp"
#include "shardwise/comm/detail/watchdog.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

/// What NCCL and CUDA answer to the parts of one call. The first that is no success counts.
class Answers {
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

/// Belongs to a watchdog, which aborts and destroys it. Its user makes calls from one thread; the
/// watchdog's thread asks what became of them. NCCL's communicator is behind a lock, held while
/// NCCL is called, which returns at once since it was made not to block.
class NcclGroup {
 public:
  using Clock = std::chrono::steady_clock;

  struct Terms {
    int device = 0;
    cudaStream_t stream = nullptr;
    std::chrono::milliseconds timeout{};
    bool owns = true;  ///< whether NCCL's communicator is ended with the group
    /// Made with a group, unless it comes from the one that the group is a part of.
    std::shared_ptr<CommunicationStream> communication = nullptr;
  };

  /// Not yet connected: connect(), adopt() or another group's split_into() follows.
  explicit NcclGroup(Terms terms) : terms_(std::move(terms)) {}
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() {
    if (terms_.owns && comm_ != nullptr) ncclCommAbort(comm_);
    cudaFree(scratch_);
  }

  void connect(int rank, int size, const ncclUniqueId& id) {
    const OnDevice on(terms_.device);
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
  const Terms& terms() const { return terms_; }
  /// On the device: two numbers of each rank, and two more.
  std::int32_t* scratch() const { return scratch_; }

  /// Puts a call onto the stream: f(answers, comm, stream) makes it, as one group of NCCL.
  /// throws  what CallWatch::fail() throws, if the group has failed or NCCL refuses the call, which
  ///         makes it fail
  template <class F>
  void issue(const Call& call, F&& f) {
    const OnDevice on(terms_.device);
    require(terms_.communication->join());
    put(terms_.stream, call, f);
  }

  /// The same on the communication stream, behind what is on the rank's stream.
  template <class F>
  Started start(const Call& call, F&& f) {
    const OnDevice on(terms_.device);
    require(terms_.communication->fork());
    Started started(terms_.communication);
    put(terms_.communication->get(), call, f);
    return started;
  }

  /// Puts calls that were captured onto the stream: launch() does. They are watched as one.
  /// throws  what launch() throws, and what issue() does
  template <class Launch>
  void issue_recorded(Launch&& launch) {
    const OnDevice on(terms_.device);
    require(terms_.communication->join());
    notes_->begin(Call{Operation::recorded});
    try {
      launch();
    } catch (...) {
      notes_->recorded(terms_.stream);  // what is on the stream is still waited for
      throw;
    }
    require(notes_->recorded(terms_.stream));
  }

  /// Returns when all calls so far are done.
  void wait() {
    const OnDevice on(terms_.device);
    for (int turn = 0; !notes_->is_idle(); ++turn) pause(turn);
  }

  void check_failure() const { notes_->check_failure(); }

  /// The part of this group that `color` makes, into a group that is not connected yet.
  void split_into(NcclGroup& part, int color, int key) {
    issue(Call{Operation::split}, [&](Answers& answers, ncclComm_t comm, cudaStream_t) {
      answers(ncclCommSplit(comm, color, key, &made_, nullptr));
    });
    wait();
    part.comm_ = std::exchange(made_, nullptr);
    part.become_ready(ncclInProgress, "ncclCommSplit");
  }

  /// Nobody will call any more: the watchdog ends the group when all is done.
  void release() { notes_->released(); }

  // --- what the watchdog calls
  // --------------------------------------------------------------------

  Look look(Clock::time_point now) {
    const OnDevice on(terms_.device);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // a user may capture meanwhile
    cudaThreadExchangeStreamCaptureMode(&mode);
    const bool is_ending = notes_->tick(now);
    ask_nccl();
    if (is_ending) go_on_ending();
    if (notes_->is_lost()) return Look::failed;
    return notes_->is_gone() ? Look::gone : Look::stays;
  }

  std::string reason() const { return notes_->reason(); }
  void fail(const std::string& why) { notes_->fail(why); }

  /// In one group of NCCL: it tells all of them to stop before it waits for any. One after the
  /// other, the first would wait for a kernel of the next on the same stream.
  static void abort(std::span<const std::unique_ptr<NcclGroup>> all) {
    ncclGroupStart();
    for (const std::unique_ptr<NcclGroup>& group : all) group->abort();
    ncclGroupEnd();
  }

 private:
  static void pause(int turn) {
    if (turn < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(turn < 1000 ? 20 : 200));
  }

  void require(cudaError_t code) {
    if (code != cudaSuccess) notes_->lose(CallWatch::Blame::library, "CUDA: " + text_of(code));
  }

  template <class F>
  void put(cudaStream_t stream, const Call& call, F&& f) {
    const bool is_watched = !is_capturing();
    if (is_watched)
      notes_->begin(call);
    else
      notes_->refuse_after_failure(call);
    Answers answers;
    {
      const std::lock_guard lock(mutex_);
      if (comm_ != nullptr) {
        answers(ncclGroupStart());
        f(answers, comm_, stream);
        answers(ncclGroupEnd());
      }
    }
    // Nobody watches a call that is captured, but it may meet other ranks.
    settle(answers.nccl(), is_watched ? Clock::time_point::max() : Clock::now() + terms_.timeout);
    if (is_watched) answers(notes_->recorded(stream));
    require(answers.cuda());
  }

  bool is_capturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(terms_.stream, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }

  /// Waits until NCCL has put on the stream what it said it would.
  void settle(ncclResult_t result, Clock::time_point until) {
    for (int turn = 0; result == ncclInProgress; ++turn) {
      check_failure();
      if (Clock::now() > until)
        notes_->lose(CallWatch::Blame::another_rank,
                     "a call could not be recorded within the time-out: another rank does not "
                     "record it");
      if (turn > 0) pause(turn);
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) continue;
      if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
    }
    if (result != ncclSuccess) notes_->lose(blame(result), text_of(result, nullptr, "a call"));
    check_failure();
  }

  /// Whether an error has come since, unless NCCL is being called.
  void ask_nccl() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    ncclResult_t result = ncclSuccess;
    if (!lock || comm_ == nullptr || ncclCommGetAsyncError(comm_, &result) != ncclSuccess) return;
    if (result == ncclSuccess || result == ncclInProgress) return;
    notes_->error(blame(result), text_of(result, comm_, "a part of it that ran by itself"));
  }

  /// One step of an orderly end, none of which blocks.
  void go_on_ending() {
    const std::lock_guard lock(mutex_);
    if (terms_.owns && comm_ != nullptr) {
      ncclResult_t result = ncclSuccess;
      if (!std::exchange(is_finalized_, true)) ncclCommFinalize(comm_);
      ncclCommGetAsyncError(comm_, &result);
      if (result != ncclSuccess) return;
      ncclCommDestroy(comm_);
    }
    comm_ = nullptr;
    notes_->ended();
  }

  /// A call of NCCL that hangs in the user's thread must not keep the watchdog from ending it.
  void abort() {
    std::unique_lock lock(mutex_, std::defer_lock);
    for (int i = 0; i < 1000 && !lock.try_lock(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
    notes_->aborted();
  }

  /// Waits for NCCL, no longer than the time-out, and learns who this rank is.
  void become_ready(ncclResult_t result, const char* call) {
    const OnDevice on(terms_.device);
    const auto until = Clock::now() + terms_.timeout;
    for (int turn = 0; result == ncclInProgress && Clock::now() < until; ++turn) {
      if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
      pause(turn);
    }
    if (result != ncclSuccess) {
      const std::string why = text_of(result, comm_, call);
      if (result != ncclInProgress && result != ncclRemoteError) throw backend_error(why);
      throw peer_error({"NCCL: ", call, " did not connect the ranks within ",
                        terms_.timeout.count(), " ms. ", why});
    }
    check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank");
    check(ncclCommCount(comm_, &size_), "ncclCommCount");
    notes_.emplace(rank_, terms_.timeout);
    const std::size_t bytes = 2 * (static_cast<std::size_t>(size_) + 1) * sizeof(std::int32_t);
    check(cudaMalloc(reinterpret_cast<void**>(&scratch_), bytes), "cudaMalloc");
    if (terms_.communication == nullptr)
      terms_.communication = std::make_shared<CommunicationStream>(terms_.device, terms_.stream);
  }

  Terms terms_;
  int rank_ = 0;
  int size_ = 1;
  std::int32_t* scratch_ = nullptr;
  std::optional<Notes> notes_;  ///< from when it is connected

  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  ///< null when aborted or ended
  ncclComm_t made_ = nullptr;  ///< what a split is making; NCCL may write it late
  bool is_finalized_ = false;
};

}  // namespace shardwise::detail::nccl
