#pragma once
// Trials whose tensors are on a GPU: bare calls copy there and back, and models compute there.

#include <memory>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "support/staged_communicator.hpp"
#include "trials/training.hpp"

namespace trials {

using GpuDevice = testing::StagingDevice<shardwise::Cuda>;

/// A communicator for memory of a GPU, as one for memory of the host.
template <class Inner>
using Staged = testing::StagedCommunicator<Inner, shardwise::Cuda>;

/// See OnHost.
template <class Inner>
struct OnGpu {
  using Ranks = Inner;
  using Backend = shardwise::Cuda;
  explicit OnGpu(Staged<Inner>& staged) : ranks(staged.inner()), backend(staged.backend()) {}
  Ranks& ranks;
  Backend& backend;
};

/// Thread ranks that share a GPU, see `run`.
struct SharedGpu {
  using Inner = shardwise::DeviceThreadCommunicator<shardwise::Cuda>;
  using Training = trials::Training<Staged<Inner>, OnGpu<Inner>>;

  template <class F>
  static void call(shardwise::ThreadCommunicator& threads, const F& f) {
    const auto device = std::make_shared<GpuDevice>();
    Staged<Inner> world(device, Inner(threads, device->backend));
    f(world);
    device->backend.synchronize();
  }
};

}  // namespace trials
