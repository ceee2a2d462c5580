// Stands in for what `Session` needs of CUDA's runtime and cuBLASLt, so that what is around the
// kernels of cuDNN runs without a GPU: one device whose memory is that of the host, where work is
// done when a call returns.

#include "cudnn/device_stand_in.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

struct CUstream_st {};
struct CUevent_st {};
struct cublasLtContext {};

using device_stand_in::alive;

namespace {

int current_device = 0;

bool fails() {
  int& calls = device_stand_in::calls_until_failure;
  return calls >= 0 && calls-- == 0;
}

template <class Object>
cudaError_t make(Object** object) {
  if (fails()) return cudaErrorUnknown;
  *object = new Object;
  ++alive;
  return cudaSuccess;
}

template <class Object>
cudaError_t destroy(Object* object) {
  delete object;
  --alive;
  return cudaSuccess;
}

cudaError_t allocate(void** memory, size_t bytes) {
  if (fails()) return cudaErrorMemoryAllocation;
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  ++alive;
  ++device_stand_in::blocks;
  return cudaSuccess;
}

cudaError_t release(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  std::free(memory);
  --alive;
  return cudaSuccess;
}

cudaError_t done() { return fails() ? cudaErrorUnknown : cudaSuccess; }

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, done(); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "a stand-in");
  properties->major = 9;
  return done();
}
cudaError_t cudaGetDevice(int* device) { return *device = current_device, done(); }
cudaError_t cudaSetDevice(int device) { return current_device = device, done(); }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfStandIn"; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the stand-in"; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return *free = *total = 1, cudaSuccess; }

cudaError_t cudaMalloc(void** memory, size_t bytes) { return allocate(memory, bytes); }
cudaError_t cudaFree(void* memory) { return release(memory); }
cudaError_t cudaMallocHost(void** memory, size_t bytes) { return allocate(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return release(memory); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  if (fails()) return cudaErrorUnknown;
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  if (fails()) return cudaErrorUnknown;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return make(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return destroy(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return done(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return done(); }
cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) { return *device = 0, done(); }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status =
      device_stand_in::is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return done();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return make(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return destroy(event); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return done(); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return done(); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  if (device_stand_in::times_left > 0) {
    --device_stand_in::times_left;
    *milliseconds = *device_stand_in::next_times++;
  }
  return done();
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (fails()) return CUBLAS_STATUS_INTERNAL_ERROR;
  *handle = new cublasLtContext;
  ++alive;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  --alive;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t) { return "a status"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "of the stand-in"; }

}  // extern "C"
