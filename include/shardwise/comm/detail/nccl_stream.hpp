#pragma once
// The stream on which collectives overlap with the other work of a rank, and the events that order
// the two.

#include <memory>
#include <utility>

#include "shardwise/comm/detail/nccl_library.hpp"

namespace shardwise::detail::nccl {

/// The communication stream of a rank. It has the greatest priority, because all ranks wait for its
/// work. Its calls run after the earlier work of the rank's stream, and the next calls of NCCL on
/// the rank's stream run after them. So all calls of all groups that share the two streams run in
/// the order in which they are issued. If two calls of NCCL ran at once, each could hold resources
/// that the other one needs, and the ranks would deadlock. Only the thread of the rank uses it.
class CommunicationStream {
 public:
  /// Beside `of_rank`, a stream of that device.
  CommunicationStream(int device, cudaStream_t of_rank) : device_(device), of_rank_(of_rank) {
    const OnDevice on(device);
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    const cudaError_t code = cudaStreamCreateWithPriority(&own_, cudaStreamNonBlocking, greatest);
    if (code != cudaSuccess) cudaEventDestroy(event_);
    check(code, "cudaStreamCreateWithPriority");
  }
  CommunicationStream(const CommunicationStream&) = delete;
  CommunicationStream& operator=(const CommunicationStream&) = delete;
  ~CommunicationStream() {
    cudaStreamDestroy(own_);
    cudaEventDestroy(event_);
  }

  cudaStream_t get() const { return own_; }

  /// Work that is enqueued here from now on begins after all work that is on the rank's stream.
  cudaError_t fork() {
    const cudaError_t code = order(of_rank_, own_);
    if (code == cudaSuccess) is_forked_ = true;
    return code;
  }

  /// Work that is enqueued on the rank's stream from now on begins after all work of this one. If
  /// that fails, the next call of join() tries again.
  cudaError_t join() {
    if (!is_forked_) return cudaSuccess;
    const cudaError_t code = order(own_, of_rank_);
    if (code == cudaSuccess) is_forked_ = false;
    return code;
  }

 private:
  /// cudaStreamWaitEvent waits for the latest record of the event, so one event is enough.
  cudaError_t order(cudaStream_t first, cudaStream_t next) {
    const OnDevice on(device_);
    cudaError_t code = cudaEventRecord(event_, first);
    if (code == cudaSuccess) code = cudaStreamWaitEvent(next, event_, 0);
    if (code != cudaSuccess) cudaGetLastError();  // so that no later call reports it
    return code;
  }

  int device_;
  cudaStream_t of_rank_;
  cudaStream_t own_ = nullptr;
  cudaEvent_t event_ = nullptr;
  bool is_forked_ = false;  ///< the rank's stream does not wait yet for the work of this one
};

/// A call on the communication stream, as a `CollectiveUnderWay`: its end makes the rank's stream
/// wait for it.
class UnderWay {
 public:
  static constexpr bool goes_on_by_itself = true;

  explicit UnderWay(std::shared_ptr<CommunicationStream> stream) : stream_(std::move(stream)) {}
  UnderWay(UnderWay&&) = default;
  UnderWay& operator=(UnderWay&&) = delete;
  ~UnderWay() { finish(); }

  void progress() {}
  void finish() noexcept {
    if (stream_ != nullptr) stream_->join();  // if this fails, the next call throws the error
    stream_.reset();
  }

 private:
  std::shared_ptr<CommunicationStream> stream_;
};

}  // namespace shardwise::detail::nccl
