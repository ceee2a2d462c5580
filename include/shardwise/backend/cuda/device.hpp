#pragma once
// The device of a rank, and its capabilities.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/options.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// A GPU of this machine.
struct CudaDevice {
  int index = 0;          ///< among the devices of the process, see CUDA_VISIBLE_DEVICES
  std::string name;       ///< the driver's name
  int major = 0;          ///< compute capability: 9 for 9.0
  int minor = 0;          ///< 0 for 9.0
  std::size_t bytes = 0;  ///< of memory, free or used
};

namespace detail::cuda {

/// "device 1 (NVIDIA H200, compute capability 9.0)".
inline std::string to_string(const CudaDevice& device) {
  return "device " + std::to_string(device.index) + " (" + device.name + ", compute capability " +
         std::to_string(device.major) + '.' + std::to_string(device.minor) + ')';
}

/// throws   backend_error if the machine has no device or the driver does not answer,
///          argument_error if `index` is not one of its devices
inline CudaDevice choose_device(int index) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    cudaGetLastError();
    const std::string answer = code == cudaSuccess ? "0"
                                                   : std::string(cudaGetErrorName(code)) + " (" +
                                                         cudaGetErrorString(code) + ')';
    throw backend_error({"Cuda: no device: cudaGetDeviceCount says ", answer,
                         ". Run on a machine with an NVIDIA GPU and its driver, or use another "
                         "backend"});
  }
  if (index < 0 || index >= count)
    throw argument_error({"Cuda: device ", index, " was asked for; this process sees ", count,
                          ", 0 to ", count - 1,
                          ". Start no more ranks on a machine than it has GPUs or let them share, "
                          "and see CUDA_VISIBLE_DEVICES"});
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return {index, properties.name, properties.major, properties.minor, properties.totalGlobalMem};
}

/// The most scratch memory of a rank's convolutions.
/// throws   argument_error if the options have no rank on the device
inline std::size_t convolution_workspace_of(const CudaOptions& options, const CudaDevice& device) {
  if (options.ranks_on_device < 1)
    throw argument_error({"Cuda: CudaOptions::ranks_on_device is ", options.ranks_on_device,
                          ", but this rank is one of them: count all that share the device"});
  const std::size_t share = device.bytes / 8 / static_cast<std::size_t>(options.ranks_on_device);
  return options.convolution_workspace_bytes.value_or(share);
}

/// throws  backend_error if the device does not multiply in `dtype`
inline void require(const CudaDevice& device, Dtype dtype) {
  if (dtype == Dtype::bfloat16 && device.major < 8)
    throw backend_error({"Cuda: ", to_string(device),
                         " does not multiply in bfloat16, which needs compute capability 8.0: use "
                         "float16 or float32, or another device"});
}

/// throws  backend_error if the device has no TF32
inline void require_tf32(const CudaDevice& device) {
  if (device.major < 8)
    throw backend_error({"Cuda: ", to_string(device),
                         " has no TF32, which needs compute capability 8.0: leave "
                         "CudaOptions::tf32 off, or use another device"});
}

/// While it lives, this device is the calling thread's current one.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    is_other_ = before_ != device;
    if (is_other_) check(cudaSetDevice(device), "cudaSetDevice");
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (is_other_ && cudaSetDevice(before_) != cudaSuccess) cudaGetLastError();
  }

 private:
  int before_ = 0;
  bool is_other_ = false;
};

/// Whether kernels on `device` may read and write this memory: its own memory, memory that CUDA
/// manages or has pinned, and all memory if the device uses the host's page tables.
/// throws  backend_error
inline bool reaches(const CudaDevice& device, const void* from) {
  const OnDevice on(device.index);
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, from), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeDevice) return attributes.device == device.index;
  if (attributes.type != cudaMemoryTypeUnregistered) return true;
  int all = 0;
  check(cudaDeviceGetAttribute(&all, cudaDevAttrPageableMemoryAccess, device.index),
        "cudaDeviceGetAttribute");
  return all != 0;
}

/// Allows kernels on `device` to read and write memory of the device `peer`.
/// throws  backend_error if it has no access to that one
inline void enable_peer_access(const CudaDevice& device, int peer) {
  if (peer == device.index) return;
  const OnDevice on(device.index);
  int has_access = 0;
  check(cudaDeviceCanAccessPeer(&has_access, device.index, peer), "cudaDeviceCanAccessPeer");
  if (has_access == 0)
    throw backend_error({"Cuda: ", to_string(device), " has no peer access to device ", peer,
                         ": let ranks that are threads share a device, or talk over NCCL; "
                         "nvidia-smi topo -p2p rw says which devices have access"});
  const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
  if (code != cudaErrorPeerAccessAlreadyEnabled) return check(code, "cudaDeviceEnablePeerAccess");
  cudaGetLastError();
}

}  // namespace detail::cuda

}  // namespace shardwise
