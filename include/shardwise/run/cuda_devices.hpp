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
/// else share the first one; processes have the only one that they see, or that of their place on
/// the machine.
struct CudaDevices {
  /// GPUs that this process sees; 0 without a driver.
  static int seen() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices;
    cudaGetLastError();
    return 0;
  }

  /// Those that the rank may choose from; 0 for a process that has none of its own.
  template <Communicator C>
  static int count(const C&) {
    if constexpr (!std::same_as<C, ThreadCommunicator>) {
      if (device_of_process() < 0) return 0;
    }
    return seen();
  }

  /// Why there are none.
  static std::string missing() {
    return "no NVIDIA GPU with a driver is to be seen there, or fewer than it has processes";
  }

  /// Calls f(communicator, backend).
  template <Communicator C, class F>
  static void run(C& ranks, F&& f) {
    if constexpr (std::same_as<C, ThreadCommunicator>) {
      if (ranks.size() == 1 || ranks.size() > seen()) {
        Cuda backend;
        DeviceThreadCommunicator<Cuda> sharing(ranks, backend);
        f(sharing, backend);
        return backend.synchronize();
      }
      over_nccl(ranks, ranks.rank(), f);
    } else {
      over_nccl(ranks, device_of_process(), f);
    }
  }

 private:
  static int device_of_process() {
    const int gpus = seen();
    const bool has_choice = gpus > 1;  // without one, nobody asks what the launcher says
    return detail::device_of_process(
        gpus, has_choice ? read_launch_environment().local_rank.value_or(0) : 0);
  }

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
