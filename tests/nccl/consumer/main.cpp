// A user's program with one process for each GPU: the ranks connect at the launcher's address, and
// add one number each. Then the same with the program's own NCCL communicator.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>
#include <span>

#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/nccl.hpp"

namespace sw = shardwise;

void add_up_with(ncclComm_t comm, cudaStream_t stream, std::span<float> values) {
  // begin: adopt
  sw::NcclCommunicator ranks(comm, stream);  // both stay yours
  ranks.all_reduce(values, values);          // runs in order on your stream
  ranks.close();                             // waits for it; then you may destroy `comm`
  // end: adopt
}

int main() try {
  // begin: connect
  const sw::LaunchEnvironment launch = sw::read_launch_environment();
  const int device = launch.local_rank.value_or(0);
  cudaStream_t stream = nullptr;
  cudaSetDevice(device);
  cudaStreamCreate(&stream);

  sw::NcclCommunicator ranks(launch, {.device = device, .stream = stream});
  // end: connect

  // begin: sum
  float one = 1;
  void* memory = nullptr;
  cudaMalloc(&memory, sizeof one);
  const std::span<float> sum(static_cast<float*>(memory), 1);

  cudaMemcpyAsync(sum.data(), &one, sizeof one, cudaMemcpyHostToDevice, stream);
  ranks.all_reduce(sum, sum);
  cudaMemcpyAsync(&one, sum.data(), sizeof one, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  ranks.check();  // throws if the watchdog has ended the call
  if (ranks.rank() == 0) std::printf("%d rank(s) on GPUs, sum %g\n", ranks.size(), double{one});
  ranks.close();
  // end: sum

  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  ncclGetUniqueId(&id);
  ncclCommInitRank(&comm, 1, id, 0);
  add_up_with(comm, stream, sum);
  ncclCommDestroy(comm);
  std::puts("and with a communicator of our own");
  cudaFree(memory);
  cudaStreamDestroy(stream);
} catch (const sw::error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
