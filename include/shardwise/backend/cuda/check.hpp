#pragma once
// Turns error codes of CUDA and its libraries into exceptions that name the call, the error, the
// device and a remedy.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "shardwise/core/error.hpp"

namespace shardwise::detail::cuda {

/// " on device 0": the device of the calling thread.
inline std::string on_device() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return "";
  return " on device " + std::to_string(device);
}

/// "CUDA: cudaMalloc failed with cudaErrorInvalidValue (invalid argument) on device 0. <advice>"
inline std::string refusal(const char* library, const char* call, const std::string& code,
                           const std::string& advice) {
  return std::string(library) + ": " + call + " failed with " + code + on_device() + ". " + advice;
}

/// throws  backend_error
[[noreturn]] inline void refuse(const char* library, const char* call, const std::string& code,
                                const std::string& advice) {
  throw backend_error(refusal(library, call, code, advice));
}

/// "3 of 80 bytes are free on device 0": for the device of the calling thread.
inline std::string free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "how much is free is not known";
  return std::to_string(free) + " of " + std::to_string(total) + " bytes are free" + on_device();
}

/// throws   memory_error, with the free bytes. `asked` is 0 if a library does not say how much it
///          requested.
[[noreturn]] inline void refuse_memory(const char* library, const char* call,
                                       const std::string& code, std::size_t asked) {
  const std::string wish = asked == 0 ? "Its own memory could not be had"
                                      : std::to_string(asked) + " bytes were asked for";
  throw memory_error(refusal(library, call, code,
                             wish + "; " + free_memory() +
                                 ". Use more ranks or a smaller batch, or end other programs on "
                                 "this device"));
}

inline const char* advice(cudaError_t code) {
  switch (code) {
    case cudaErrorInsufficientDriver:
      return "The driver is older than the toolkit that this program was built with: update the "
             "driver, or build with an older toolkit";
    case cudaErrorNoKernelImageForDevice:
      return "The program holds no code for this device: build it with the device's architecture "
             "in CMAKE_CUDA_ARCHITECTURES";
    case cudaErrorDevicesUnavailable:
      return "Another process has the device for itself, or the driver gives it to nobody";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureImplicit:
      return "This cannot be captured into a graph: run the same step once before the capture, "
             "which makes its plans and takes its memory";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
      return "A kernel has failed, maybe one before this call, and the process can use the device "
             "no more: compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1, says which";
    default:
      return "The documentation of cudaError_t says what the code means";
  }
}

/// `asked` is the number of bytes that the call was to allocate; 0 if it allocates nothing.
/// throws   memory_error if there is not enough memory, backend_error for every other failure; it
///          clears the thread's last error, so that no later call reports it
inline void check(cudaError_t code, const char* call, std::size_t asked = 0) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  const std::string text =
      std::string(cudaGetErrorName(code)) + " (" + cudaGetErrorString(code) + ')';
  if (code == cudaErrorMemoryAllocation) refuse_memory("CUDA", call, text, asked);
  refuse("CUDA", call, text, advice(code));
}

}  // namespace shardwise::detail::cuda
