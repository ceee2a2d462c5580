#pragma once
// The GPUs of a machine as devices for ranks. To be compiled by nvcc.

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/nccl.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/run/device.hpp"

namespace shardwise {

/// For `with_device`. Thread ranks have one GPU each and communicate over NCCL if there are enough
/// GPUs; otherwise they share the first one. A process has the only GPU that it sees, or the one
/// with its local rank. Sends an all-reduce (min) of one number.
struct CudaDevices {
  /// GPUs that this process sees; 0 without a driver.
  static int seen() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices;
    cudaGetLastError();
    return 0;
  }

  /// GPUs that the rank may use; 0 for a process without its own GPU.
  template <Communicator C>
  static int count(const C&) {
    if constexpr (!std::same_as<C, ThreadCommunicator>) {
      if (device_of_process() < 0) return 0;
    }
    return seen();
  }

  /// The reason why there are none.
  static std::string missing() {
    return "no NVIDIA GPU with a driver is to be seen there, or fewer than it has processes";
  }

  /// Calls f(communicator, backend).
  template <Communicator C, class F>
  static void run(C& ranks, F&& f) {
    if constexpr (std::same_as<C, ThreadCommunicator>) {
      if (ranks.size() == 1 || ranks.size() > seen()) {
        Cuda backend(options_of(ranks, 0, ranks.size()));
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
    const bool has_choice = gpus > 1;  // otherwise the launcher's variables are not read
    return detail::device_of_process(
        gpus, has_choice ? read_launch_environment().local_rank.value_or(0) : 0);
  }

  /// The workspace of convolutions, the smallest of all ranks, so that all choose the same engines.
  template <Communicator C>
  static CudaOptions options_of(C& ranks, int device, int ranks_on_device) {
    CudaOptions options{.device = device, .ranks_on_device = ranks_on_device};
    const auto here = static_cast<std::int64_t>(
        detail::cuda::convolution_workspace_of(options, detail::cuda::choose_device(device)));
    options.convolution_workspace_bytes =
        static_cast<std::size_t>(detail::smallest_of_ranks(ranks, here));
    return options;
  }

  template <Communicator C, class F>
  static void over_nccl(C& ranks, int device, F&& f) {
    Cuda backend(options_of(ranks, device, 1));
    NcclCommunicator group(ranks, {.device = device, .stream = backend.stream()});
    f(group, backend);
    backend.synchronize();
    group.close();
  }
};

}  // namespace shardwise
