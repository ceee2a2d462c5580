#pragma once
// Work of a backend that is recorded once and launched as a whole.

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/detail/destroyer.hpp"

namespace shardwise {

/// The work that `work()` puts on the backend's stream, as a CUDA graph: one launch instead of one
/// for each kernel, which is faster if kernels are short. For example, a model's forward:
///
///     model.evaluate(x);                                     // makes plans, takes memory
///     CudaGraph graph(backend, [&] { y = model.evaluate(x); });
///     graph.launch();                                        // y is of what x holds now
///
/// It uses the memory of the recorded calls. That memory must stay, and no other work may use it:
/// do not run the model otherwise while the graph is in use; the model must outlive it. Numbers
/// that the host computed are those of the recording. Work that waits for the device cannot be
/// recorded, such as a loss that the host reads. A RecordedStep (train/recorded_step.hpp) handles
/// all this for whole training steps.
class CudaGraph {
 public:
  /// `work` runs once, without effect on the device. `backend` is a Cuda.
  /// throws   as work(); backend_error if it cannot be recorded
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

  /// Enqueues the recorded work on the backend's stream.
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
