#pragma once
// Streams, and the events that order their work.

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/detail/destroyer.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::cuda {

using EventHandle =
    std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroyer<cudaEventDestroy>>;
using StreamHandle =
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroyer<cudaStreamDestroy>>;

inline constexpr const char* run_before_capture =
    "run the same step once before the capture, which makes its plans and takes its memory";

/// Whether the stream is being captured into a graph.
inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// throws   backend_error while the stream is captured into a graph; the message begins with `what`
inline void require_no_capture(cudaStream_t stream, const char* what,
                               const char* advice = run_before_capture) {
  if (is_captured(stream))
    throw backend_error({"Cuda: ", what, " while the stream is captured into a graph: ", advice});
}

/// An event in the work of a stream, on the device that is current at its creation.
class Event {
 public:
  enum class Use { order, time };  ///< an event without timing is cheaper

  explicit Event(Use use) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event,
                                   use == Use::order ? cudaEventDisableTiming : cudaEventDefault),
          "cudaEventCreateWithFlags");
    handle_.reset(event);
  }

  cudaEvent_t get() const { return handle_.get(); }

  void record(cudaStream_t stream) {
    check(cudaEventRecord(handle_.get(), stream), "cudaEventRecord");
  }

  /// Waits on the host until the work before the event is done.
  void synchronize() { check(cudaEventSynchronize(handle_.get()), "cudaEventSynchronize"); }

  /// Both must have Use::time, and the work before `end` must be done.
  static float milliseconds(const Event& begin, const Event& end) {
    float result = 0;
    check(cudaEventElapsedTime(&result, begin.get(), end.get()), "cudaEventElapsedTime");
    return result;
  }

 private:
  EventHandle handle_;
};

/// A stream of a device: its own, or the caller's, which must outlive it.
class Stream {
 public:
  /// Its own if `adopted` is null; that does not wait for CUDA's default stream.
  /// throws  argument_error if `adopted` belongs to another device
  Stream(int device, cudaStream_t adopted) : device_(device), stream_(adopted) {
    const OnDevice on(device);
    if (adopted == nullptr) {
      check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
            "cudaStreamCreateWithFlags");
      own_.reset(stream_);
    } else {
      check_device();
    }
  }

  cudaStream_t get() const { return stream_; }
  int device() const { return device_; }

  /// Waits on the host until all work is done.
  void synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  /// Later work begins after the event, which may be of another stream.
  void wait_for(const Event& event) {
    check(cudaStreamWaitEvent(stream_, event.get(), 0), "cudaStreamWaitEvent");
  }

 private:
  void check_device() const {
#if CUDART_VERSION >= 12080  // older runtimes cannot tell
    int device = 0;
    check(cudaStreamGetDevice(stream_, &device), "cudaStreamGetDevice");
    if (device != device_)
      throw argument_error({"Cuda: the stream is of device ", device,
                            ", but CudaOptions::device is ", device_,
                            ": name the stream's own device"});
#endif
  }

  int device_;
  cudaStream_t stream_;
  StreamHandle own_;  ///< null if the caller's is used
};

}  // namespace shardwise::detail::cuda
