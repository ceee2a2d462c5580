#pragma once
// An event of CUDA, which tells when a stream has reached it.

#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

class StreamEvent {
 public:
  /// throws  backend_error if CUDA refuses
  StreamEvent() {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;
  ~StreamEvent() { cudaEventDestroy(event_); }

  /// The stream reaches it after all work that is on the stream now.
  cudaError_t record(cudaStream_t stream) { return cudaEventRecord(event_, stream); }

  /// Whether the stream has reached it.
  /// throws  backend_error if the work before it, or the device, has failed
  bool is_reached() const {
    const cudaError_t code = cudaEventQuery(event_);
    if (code != cudaSuccess && code != cudaErrorNotReady)
      throw backend_error({"CUDA: cudaEventQuery: ", text_of(code)});
    return code == cudaSuccess;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace shardwise::detail::nccl
