#pragma once
// Work of a backend that is recorded once and launched as a whole.

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/detail/destroyer.hpp"

namespace shardwise {

/// What `work()` puts on the backend's stream, as a CUDA graph: one launch instead of one for each
/// kernel, which pays where kernels are short. A forward of a model, for example:
///
///     model.evaluate(x);                                     // makes plans, takes memory
///     CudaGraph graph(backend, [&] { y = model.evaluate(x); });
///     graph.launch();                                        // y is of what x holds now
///
/// It reads and writes the memory that the recorded calls did, so that memory stays, and nothing
/// else uses it: the model is not run otherwise as long as the graph is used, and outlives it.
/// Numbers that the host computed are those of the recording. Work that waits for the device cannot
/// be recorded: a loss, which the host reads. A TrainingGraph (train/training_graph.hpp) takes care
/// of all that, for whole training steps.
class CudaGraph {
 public:
  /// `work` runs once, without any effect on the device. `backend` is a Cuda.
  /// throws   what work() throws; backend_error if it cannot be recorded
  template <class Backend, class Work>
  CudaGraph(Backend& backend, Work&& work)
      : stream_(backend.stream()), device_(backend.device().index) {
    const detail::cuda::OnDevice on(device_);
    detail::cuda::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                        "cudaStreamBeginCapture");
    try {
      work();
    } catch (...) {
      cudaGraph_t unfinished = nullptr;
      cudaStreamEndCapture(stream_, &unfinished);
      const Graph given_up(unfinished);
      cudaGetLastError();
      throw;
    }
    cudaGraph_t recorded = nullptr;
    detail::cuda::check(cudaStreamEndCapture(stream_, &recorded), "cudaStreamEndCapture");
    const Graph graph(recorded);
    cudaGraphExec_t executable = nullptr;
    detail::cuda::check(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
    executable_.reset(executable);
  }

  /// Puts the recorded work on the backend's stream.
  void launch() {
    const detail::cuda::OnDevice on(device_);
    detail::cuda::check(cudaGraphLaunch(executable_.get(), stream_), "cudaGraphLaunch");
  }

 private:
  using Graph =
      std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, detail::Destroyer<cudaGraphDestroy>>;
  using Executable = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>,
                                     detail::Destroyer<cudaGraphExecDestroy>>;

  cudaStream_t stream_;
  int device_;
  Executable executable_;
};

}  // namespace shardwise
