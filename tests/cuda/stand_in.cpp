// Stands in for CUDA's runtime, so that what is around it runs without a GPU: devices are numbers,
// their memory is that of the host, and a stream is a list of what is still to be done, which is
// done when somebody waits for it. Calls do nothing but what CUDA's documentation promises.

#include "cuda/stand_in.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

using stand_in::alive;
using stand_in::fails;

struct CUstream_st {
  int device = 0;
  std::deque<std::function<void()>> tasks;
  float time = 0;
};

struct CUevent_st {
  cudaStream_t stream = nullptr;
  std::size_t before = 0;  ///< tasks of the stream that were put there before it
  float time = -1;
};

namespace {

int current_device = 0;
cudaError_t last_error = cudaSuccess;
std::set<cudaStream_t> streams;
std::map<const std::byte*, std::size_t> memory;
std::map<cudaStream_t, std::size_t> done;  ///< tasks of each stream so far
cudaStream_t running = nullptr;

std::map<int, std::set<int>> peers_of;
cudaError_t answer(cudaError_t code) { return last_error = code; }

void run_until(cudaStream_t stream, std::size_t count) {
  while (done[stream] < count && !stream->tasks.empty()) {
    const std::function<void()> task = std::move(stream->tasks.front());
    stream->tasks.pop_front();
    ++done[stream];
    const cudaStream_t outer = std::exchange(running, stream);
    task();
    running = outer;
  }
}
void run_all(cudaStream_t stream) { run_until(stream, static_cast<std::size_t>(-1)); }

}  // namespace

bool stand_in::fails(const char* name) {
  if (++calls != fails_at) return false;
  failed = name;
  return true;
}
void stand_in::report(const std::string& text) {
  if (misuse.empty()) misuse = text;
}
void stand_in::push(cudaStream_t stream, std::function<void()> kernel) {
  if (streams.count(stream) == 0) return report("work for a stream that is not there");
  if (stream->device != current_device) report("work from a thread on another device");
  stream->tasks.push_back(std::move(kernel));
  if (at_once) run_all(stream);
}
void stand_in::take_time(float milliseconds) { running->time += milliseconds; }
bool stand_in::is_on_device(const void* from, std::size_t bytes) {
  if (at_once) return true;
  const auto* const first = static_cast<const std::byte*>(from);
  auto piece = memory.upper_bound(first);
  if (from == nullptr || piece == memory.begin()) return false;
  --piece;
  return first + bytes <= piece->first + piece->second;
}

// --- devices ------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  if (!stand_in::has_driver) return answer(cudaErrorInsufficientDriver);
  if (fails("cudaGetDeviceCount")) return answer(cudaErrorUnknown);
  *count = stand_in::devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  if (fails("cudaGetDevice")) return answer(cudaErrorUnknown);
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (fails("cudaSetDevice")) return answer(cudaErrorUnknown);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  if (fails("cudaGetDeviceProperties")) return answer(cudaErrorUnknown);
  std::strcpy(properties->name, "Stand-in");
  properties->major = stand_in::major;
  properties->totalGlobalMem = std::size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* from) {
  if (fails("cudaPointerGetAttributes")) return answer(cudaErrorUnknown);
  const bool there = stand_in::is_on_device(from, 1);
  attributes->type = there ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  attributes->device = stand_in::memory_of_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  if (fails("cudaDeviceGetAttribute")) return answer(cudaErrorUnknown);
  *value = stand_in::reaches_all ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  if (fails("cudaDeviceCanAccessPeer")) return answer(cudaErrorUnknown);
  *can = stand_in::has_peer_access ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  if (fails("cudaDeviceEnablePeerAccess")) return answer(cudaErrorUnknown);
  if (peer == current_device) stand_in::report("peer access of a device to itself");
  if (!peers_of[current_device].insert(peer).second)
    return answer(cudaErrorPeerAccessAlreadyEnabled);
  ++stand_in::peers_reached;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfStandIn";
}
const char* cudaGetErrorString(cudaError_t) { return "words of the stand-in"; }

// --- memory -------------------------------------------------------------------------------------

namespace {

cudaError_t take(void** data, std::size_t bytes, bool is_device) {
  if (stand_in::is_capturing) return answer(cudaErrorStreamCaptureUnsupported);
  if (is_device && bytes > stand_in::free_bytes) return answer(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*data, 0xff, bytes);
  if (is_device) {
    memory[static_cast<std::byte*>(*data)] = bytes;
    stand_in::free_bytes -= bytes;
  }
  ++alive;
  ++stand_in::allocations;
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  if (fails("cudaMalloc")) return answer(cudaErrorMemoryAllocation);
  return take(data, bytes, true);
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  for (const cudaStream_t stream : streams)  // it is not promised to wait
    if (!stream->tasks.empty()) stand_in::report("cudaFree before the work of a stream is done");
  const auto piece = memory.find(static_cast<std::byte*>(data));
  if (piece == memory.end()) return stand_in::report("cudaFree of no memory"), cudaSuccess;
  stand_in::free_bytes += piece->second;
  memory.erase(piece);
  std::free(data);
  --alive;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  if (fails("cudaMallocHost")) return answer(cudaErrorMemoryAllocation);
  return take(data, bytes, false);
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  --alive;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = stand_in::free_bytes;
  *total = std::size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (fails("cudaMemcpyAsync")) return answer(cudaErrorUnknown);
  if (!stand_in::is_on_device(kind == cudaMemcpyHostToDevice ? to : from, bytes))
    stand_in::report("cudaMemcpyAsync: not the memory of the device");
  std::vector<std::byte> staged;
  const auto* const first = static_cast<const std::byte*>(from);
  if (kind == cudaMemcpyHostToDevice) staged.assign(first, first + bytes);
  stand_in::push(stream, [=] { std::memcpy(to, staged.empty() ? from : staged.data(), bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (fails("cudaMemsetAsync")) return answer(cudaErrorUnknown);
  if (!stand_in::is_on_device(to, bytes)) stand_in::report("cudaMemsetAsync: not on the device");
  stand_in::push(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

// --- streams and events -------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (fails("cudaStreamCreateWithFlags")) return answer(cudaErrorUnknown);
  *stream = new CUstream_st;
  (*stream)->device = current_device;
  streams.insert(*stream);
  ++alive;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  run_all(stream);
  streams.erase(stream);
  done.erase(stream);
  delete stream;
  --alive;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  run_all(stream);
  return fails("cudaStreamSynchronize") ? answer(cudaErrorLaunchFailure) : cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  if (fails("cudaStreamGetDevice")) return answer(cudaErrorUnknown);
  *device = stream->device;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  if (fails("cudaStreamIsCapturing")) return answer(cudaErrorUnknown);
  *status = stand_in::is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (fails("cudaStreamWaitEvent")) return answer(cudaErrorUnknown);
  stand_in::push(stream, [other = event->stream, before = event->before] {
    if (streams.count(other) != 0) run_until(other, before);
  });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (fails("cudaEventCreateWithFlags")) return answer(cudaErrorUnknown);
  *event = new CUevent_st;
  ++alive;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  for (const cudaStream_t stream : streams) run_all(stream);
  delete event;
  --alive;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (fails("cudaEventRecord")) return answer(cudaErrorUnknown);
  event->stream = stream;
  stand_in::push(stream, [event, stream] { event->time = stream->time; });
  event->before = done[stream] + stream->tasks.size();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (fails("cudaEventSynchronize")) return answer(cudaErrorUnknown);
  run_until(event->stream, event->before);
  if (!event->stream->tasks.empty()) ++stand_in::waits_with_work_behind;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (fails("cudaEventElapsedTime")) return answer(cudaErrorUnknown);
  if (begin->time < 0 || end->time < 0) return answer(cudaErrorNotReady);
  *milliseconds = end->time - begin->time;
  return cudaSuccess;
}
