#pragma once
// The stream on which collectives run beside a rank's other work, and what orders the two.

#include <memory>
#include <utility>

#include "shardwise/comm/detail/nccl_library.hpp"

namespace shardwise::detail::nccl {

/// The communication stream of a rank, of the greatest priority, since all ranks wait for what it
/// does. Its calls come behind the rank's stream, and the rank's next calls of NCCL behind them: so
/// all calls of all groups that share the two streams run in one order, which is that of their
/// issue. Two calls of NCCL at once could each hold what the other rank's needs. For the thread of
/// the rank.
class CommunicationStream {
 public:
  /// Beside `of_rank`, a stream of that device.
  CommunicationStream(int device, cudaStream_t of_rank) : device_(device), of_rank_(of_rank) {
    const OnDevice on(device);
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check(cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    const cudaError_t code = cudaStreamCreateWithPriority(&own_, cudaStreamNonBlocking, greatest);
    if (code != cudaSuccess) cudaEventDestroy(mark_);
    check(code, "cudaStreamCreateWithPriority");
  }
  CommunicationStream(const CommunicationStream&) = delete;
  CommunicationStream& operator=(const CommunicationStream&) = delete;
  ~CommunicationStream() {
    cudaStreamDestroy(own_);
    cudaEventDestroy(mark_);
  }

  cudaStream_t get() const { return own_; }

  /// What it is given from now on begins behind all that the rank's stream was given.
  cudaError_t fork() {
    const cudaError_t code = order(of_rank_, own_);
    if (code == cudaSuccess) is_forked_ = true;
    return code;
  }

  /// What the rank's stream is given from now on begins behind all that this one was given. If that
  /// fails, the next call of this tries again.
  cudaError_t join() {
    if (!is_forked_) return cudaSuccess;
    const cudaError_t code = order(own_, of_rank_);
    if (code == cudaSuccess) is_forked_ = false;
    return code;
  }

 private:
  /// A wait is for what the event marked when it was called, so one event will do.
  cudaError_t order(cudaStream_t first, cudaStream_t next) {
    const OnDevice on(device_);
    cudaError_t code = cudaEventRecord(mark_, first);
    if (code == cudaSuccess) code = cudaStreamWaitEvent(next, mark_, 0);
    if (code != cudaSuccess) cudaGetLastError();  // so that no later call reports it
    return code;
  }

  int device_;
  cudaStream_t of_rank_;
  cudaStream_t own_ = nullptr;
  cudaEvent_t mark_ = nullptr;
  bool is_forked_ = false;  ///< the rank's stream does not wait yet for what this was given
};

/// A call on the communication stream. Behind its end, the rank's stream waits for it.
class [[nodiscard]] Started {
 public:
  explicit Started(std::shared_ptr<CommunicationStream> stream) : stream_(std::move(stream)) {}
  Started(Started&&) = default;
  Started& operator=(Started&&) = delete;
  ~Started() {
    if (stream_ != nullptr) stream_->join();  // the next call throws what goes wrong here
  }

 private:
  std::shared_ptr<CommunicationStream> stream_;
};

}  // namespace shardwise::detail::nccl
