#pragma once
// The products of a convolution as graphs of cuDNN written by hand, by the fastest of eight engines
// that its heuristics propose, of any kind, which computes what it should.

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu/product_by_hand.hpp"
#include "gpu/sampled_convolution.hpp"
#include "shardwise/backend/cuda/cudnn_descriptor.hpp"
#include "shardwise/backend/cuda/cudnn_graph.hpp"
#include "shardwise/backend/cuda/cudnn_plan.hpp"
#include "shardwise/backend/cuda/session.hpp"

namespace by_hand {

namespace cuda = shardwise::detail::cuda;
using cuda::CudnnDescriptor;

inline CudnnDescriptor tensor(std::int64_t id, cudnnDataType_t type,
                              const bench::ImageExtents& extents, bench::Innermost order) {
  const std::array<std::size_t, 4> given{extents.n, extents.c, extents.h, extents.w};
  const std::array<std::size_t, 4> steps = extents.strides(order);
  std::array<std::int64_t, 4> sizes{}, strides{};
  for (std::size_t k = 0; k < given.size(); ++k) {
    sizes[k] = static_cast<std::int64_t>(given[k]);
    strides[k] = static_cast<std::int64_t>(steps[k]);
  }
  CudnnDescriptor result(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  result.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  result.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  result.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  result.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes.data(), sizes.size());
  result.set(CUDNN_ATTR_TENSOR_STRIDES, strides.data(), strides.size());
  result.finalize("cudnnBackendFinalize of a tensor");
  return result;
}

/// One product of these tensors, all of which are of one type.
template <class Device, class T>
CudnnDescriptor graph_of(const Device& device, cuda::ConvolutionProduct which, cudnnDataType_t type,
                         const bench::ConvolutionTensors<T>& tensors) {
  const CudnnDescriptor x = tensor('x', type, tensors.of_x(), tensors.order);
  const CudnnDescriptor w = tensor('w', type, tensors.of_w(), tensors.order);
  const CudnnDescriptor y = tensor('y', type, tensors.of_y(), tensors.order);
  const CudnnDescriptor steps = cuda::cudnn_steps(bench::whole(tensors.shape, tensors.images).call,
                                                  shardwise::Dtype::float32);
  const cuda::ConvolutionNames names = cuda::names_of(which);
  CudnnDescriptor operation(names.type);
  operation.set(names.x, x);
  operation.set(names.w, w);
  operation.set(names.y, y);
  operation.set(names.steps, steps);
  operation.set(names.alpha, 1.0F);
  operation.set(names.beta, 0.0F);
  operation.finalize("cudnnBackendFinalize of a convolution");
  return cuda::graph_of(device, operation);
}

/// The fastest of the engines that is_right(engine).
/// throws  std::runtime_error if none is
template <class Engine, class IsRight>
Engine& fastest_right(std::vector<Engine>& engines, const IsRight& is_right) {
  std::sort(engines.begin(), engines.end(),
            [](const Engine& a, const Engine& b) { return a.milliseconds < b.milliseconds; });
  const auto found = std::find_if(engines.begin(), engines.end(), is_right);
  if (found == engines.end())
    throw std::runtime_error("by hand: of cuDNN's engines " + std::to_string(engines.size()) +
                             " run, and none of them computes what it should");
  return *found;
}

/// One product on several sets of tensors: where x, w and y lie, or their gradients.
class ConvolutionProduct {
 public:
  /// `type` is that of all tensors. The tensors of `sets` are used in turns. `is_right(run)` says
  /// whether run() computes the product of the first of them.
  /// throws  std::runtime_error if cuDNN has no engine that runs and is right
  template <class T, class IsRight>
  ConvolutionProduct(cuda::Session& session, cuda::ConvolutionProduct which, cudnnDataType_t type,
                     const bench::ConvolutionTensors<T>& tensors,
                     std::vector<cuda::ConvolutionPointers> sets, const IsRight& is_right)
      : session_(session), sets_(std::move(sets)) {
    std::vector<Engine> engines =
        timed(graph_of(cuda::DeviceOfHandle{session.cudnn()}, which, type, tensors));
    plan_ = std::move(fastest_right(engines, [&](const Engine& engine) {
                        return is_right([&] { run(engine.plan, 0); });
                      }).plan);
  }

  void operator()(std::size_t set) { run(*plan_, set); }

 private:
  /// An engine that runs.
  struct Engine {
    cuda::CudnnPlan plan;
    float milliseconds;
  };

  void run(const cuda::CudnnPlan& plan, std::size_t set) {
    cuda::check(plan.launch(session_, sets_[set]), "cudnnBackendExecute");
  }

  /// Those that run of up to eight engines, with up to 1 GiB of workspace.
  std::vector<Engine> timed(const CudnnDescriptor& graph) {
    const cuda::DeviceOfHandle device{session_.cudnn()};
    std::vector<Engine> engines;
    int tried = 0;
    for (CudnnDescriptor& proposal : cuda::proposals(device, graph, CUDNN_HEUR_MODE_A)) {
      if (tried == 8) break;
      std::optional<cuda::CudnnPlan> plan = cuda::CudnnPlan::of(device, std::move(proposal));
      if (!plan || plan->workspace_bytes() > std::size_t{1} << 30) continue;
      ++tried;
      const float time = milliseconds_of(session_.stream().get(), "cudnnBackendExecute",
                                         [&] { return plan->launch(session_, sets_[0]); });
      if (time < std::numeric_limits<float>::infinity())
        engines.push_back({std::move(*plan), time});
    }
    return engines;
  }

  cuda::Session& session_;
  std::vector<cuda::ConvolutionPointers> sets_;
  std::optional<cuda::CudnnPlan> plan_;
};

}  // namespace by_hand
