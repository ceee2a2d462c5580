#pragma once
// The GPUs of a machine as devices for ranks. To be compiled by nvcc.

#include <cuda_runtime_api.h>

#include <concepts>
#include <string>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/nccl.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/run/device.hpp"

namespace shardwise {

/// For `with_device`. Thread ranks have a GPU each and talk over NCCL, if there are enough, and
/// else share the first one; processes have that of their place on the machine.
struct CudaDevices {
  /// GPUs that this process sees; 0 without a driver.
  static int count() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices;
    cudaGetLastError();
    return 0;
  }

  /// Why there are none.
  static std::string missing() { return "no NVIDIA GPU with a driver is to be seen there"; }

  /// Calls f(communicator, backend).
  template <Communicator C, class F>
  static void run(C& ranks, F&& f) {
    if constexpr (std::same_as<C, ThreadCommunicator>) {
      if (ranks.size() == 1 || ranks.size() > count()) {
        Cuda backend;
        DeviceThreadCommunicator<Cuda> sharing(ranks, backend);
        f(sharing, backend);
        backend.synchronize();
        return ranks.barrier();  // peers read this rank's memory until here
      }
      over_nccl(ranks, ranks.rank(), f);
    } else {
      over_nccl(ranks, read_launch_environment().local_rank.value_or(0), f);
    }
  }

 private:
  template <Communicator C, class F>
  static void over_nccl(C& ranks, int device, F&& f) {
    Cuda backend(CudaOptions{.device = device});
    OverCommunicator<C> place(ranks);
    NcclCommunicator group(place, {.device = device, .stream = backend.stream()});
    f(group, backend);
    backend.synchronize();
    group.close();
  }
};

}  // namespace shardwise
