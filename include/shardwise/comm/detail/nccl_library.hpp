#pragma once
// The only header of comm/ that includes headers of NVIDIA: their return codes as exceptions, and
// their names of our dtypes.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/pending_calls.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 1)
#error "shardwise: comm/nccl.hpp needs NCCL 2.18 or newer, which has ncclCommSplit."
#endif

namespace shardwise::detail::nccl {

inline std::string text_of(cudaError_t code) {
  return std::string(cudaGetErrorName(code)) + " (" + cudaGetErrorString(code) + ')';
}

/// throws  backend_error, and clears the error of the thread, so that no later call reports it
inline void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw backend_error({"CUDA: ", call, " failed with ", text_of(code)});
}

/// With the text of NCCL for its last error.
inline std::string text_of(ncclResult_t code, ncclComm_t comm, const char* call) {
  const char* const last = ncclGetLastError(comm);
  std::string text = std::string("NCCL: ") + call + " failed with code " + std::to_string(code) +
                     ": " + ncclGetErrorString(code);
  if (last != nullptr && *last != '\0') (text += ". ") += last;
  return text;
}

inline void check(ncclResult_t code, const char* call) {
  if (code != ncclSuccess) throw backend_error(text_of(code, nullptr, call));
}

inline FailureSource failure_source(ncclResult_t code) {
  return code == ncclRemoteError ? FailureSource::another_rank : FailureSource::library;
}

constexpr ncclDataType_t type_of(Dtype dtype) {
  constexpr ncclDataType_t types[] = {ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat16,
                                      ncclInt32,   ncclInt64,   ncclUint8};
  return types[static_cast<std::size_t>(dtype)];
}

constexpr ncclRedOp_t operation_of(Reduction reduction) {
  constexpr ncclRedOp_t operations[] = {ncclSum, ncclMax, ncclMin};
  return operations[static_cast<std::size_t>(reduction)];
}

/// The device to work on: `wanted`, or the calling thread's own where it is -1.
/// throws  backend_error if the machine has no device, argument_error if `wanted` is too large
inline int choose_device(int wanted) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    cudaGetLastError();
    throw backend_error({"NCCL: no device: cudaGetDeviceCount says ",
                         code == cudaSuccess ? std::string("0") : text_of(code),
                         ". Run on a machine with an NVIDIA GPU and its driver, or use another "
                         "communicator"});
  }
  if (wanted >= count || wanted < -1)
    throw argument_error({"NCCL: device ", wanted, " was asked for; this process sees ", count,
                          ", 0 to ", count - 1,
                          ". Start no more ranks on a machine than it has GPUs, and see "
                          "CUDA_VISIBLE_DEVICES"});
  if (wanted == -1) check(cudaGetDevice(&wanted), "cudaGetDevice");
  return wanted;
}

/// A new id; where NCCL_COMM_ID is set, that of its address.
inline ncclUniqueId new_id() {
  ncclUniqueId id;
  const ncclResult_t code = ncclGetUniqueId(&id);
  if (code != ncclSuccess)
    throw backend_error({text_of(code, nullptr, "ncclGetUniqueId"),
                         ". Where NCCL_COMM_ID is set, it must be <host>:<port>, and this machine "
                         "needs a network interface in the subnet of that host"});
  return id;
}

/// While it lives, the calling thread works on this device.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    is_other_ = before_ != device;
    if (is_other_) cudaSetDevice(device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (is_other_) cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool is_other_ = false;
};

}  // namespace shardwise::detail::nccl
