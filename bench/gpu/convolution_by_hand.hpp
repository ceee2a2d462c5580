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

#include "gpu/sampled_convolution.hpp"
#include "shardwise/backend/cuda/cudnn_descriptor.hpp"
#include "shardwise/backend/cuda/cudnn_graph.hpp"
#include "shardwise/backend/cuda/cudnn_plan.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/core/memory.hpp"

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

/// Two axes of space, sums in float.
inline CudnnDescriptor steps_of(const bench::ConvolutionShape& shape) {
  const auto both = [](std::size_t n) {
    return std::array<std::int64_t, 2>{static_cast<std::int64_t>(n), static_cast<std::int64_t>(n)};
  };
  CudnnDescriptor steps(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  steps.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  steps.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  steps.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  steps.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, both(shape.stride).data(), 2);
  steps.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, both(1).data(), 2);
  steps.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, both(shape.padding()).data(), 2);
  steps.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, both(shape.padding()).data(), 2);
  steps.finalize("cudnnBackendFinalize of a convolution's steps");
  return steps;
}

/// One product of these tensors, all of which are of one type.
template <class Device, class T>
CudnnDescriptor graph_of(const Device& device, cuda::ConvolutionProduct which, cudnnDataType_t type,
                         const bench::ConvolutionTensors<T>& tensors) {
  const CudnnDescriptor x = tensor('x', type, tensors.of_x(), tensors.order);
  const CudnnDescriptor w = tensor('w', type, tensors.of_w(), tensors.order);
  const CudnnDescriptor y = tensor('y', type, tensors.of_y(), tensors.order);
  const CudnnDescriptor steps = steps_of(tensors.shape);
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

/// Where x, w and y lie, or their gradients.
using Pointers = std::array<const void*, 3>;

/// One product on several sets of tensors.
class ConvolutionProduct {
 public:
  /// `type` is that of all tensors. The tensors of `sets` are used in turns. `is_right(run)` says
  /// whether run() computes the product of the first of them.
  /// throws  std::runtime_error if cuDNN has no engine that runs and is right
  template <class T, class IsRight>
  ConvolutionProduct(cuda::Session& session, cuda::ConvolutionProduct which, cudnnDataType_t type,
                     const bench::ConvolutionTensors<T>& tensors, const std::vector<Pointers>& sets,
                     const IsRight& is_right)
      : session_(session), pool_(session.memory()) {
    const CudnnDescriptor graph = graph_of(device(), which, type, tensors);
    choose(graph, sets.front(), is_right);
    for (const Pointers& set : sets) packs_.push_back(pack(set, workspace_.data()));
  }

  void operator()(std::size_t set) {
    cuda::check(launch(*plan_, packs_[set]), "cudnnBackendExecute");
  }

 private:
  /// An engine that runs.
  struct Engine {
    CudnnDescriptor config;  ///< what the plan was made of
    CudnnDescriptor plan;
    std::size_t workspace_bytes;
    float milliseconds;
  };

  cuda::DeviceOfHandle device() { return {session_.cudnn()}; }

  static CudnnDescriptor pack(const Pointers& pointers, void* workspace) {
    return cuda::pointer_pack({pointers[0], pointers[1], pointers[2]}, workspace);
  }

  cudnnStatus_t launch(const CudnnDescriptor& plan, const CudnnDescriptor& pack) {
    return cudnnBackendExecute(session_.cudnn(), plan.get(), pack.get());
  }

  /// The fastest engine that is right.
  template <class IsRight>
  void choose(const CudnnDescriptor& graph, const Pointers& pointers, const IsRight& is_right) {
    std::vector<Engine> engines = timed(graph, pointers);
    Engine& chosen = fastest_right(engines, [&](const Engine& engine) {
      workspace_ = pool_.take(engine.workspace_bytes);
      const CudnnDescriptor once = pack(pointers, workspace_.data());
      return is_right([&] { cuda::check(launch(engine.plan, once), "cudnnBackendExecute"); });
    });
    config_ = std::move(chosen.config);
    plan_ = std::move(chosen.plan);
  }

  /// Up to eight engines that run.
  std::vector<Engine> timed(const CudnnDescriptor& graph, const Pointers& pointers) {
    constexpr std::size_t candidates = 8;
    std::vector<Engine> engines;
    std::size_t tried = 0;
    for (CudnnDescriptor& config : cuda::proposals(device(), graph, CUDNN_HEUR_MODE_A)) {
      if (tried == candidates) break;
      CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      device().tell_plan(plan);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) continue;
      std::int64_t bytes = 0;
      plan.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &bytes, 1);
      if (bytes > std::int64_t{1} << 30) continue;
      ++tried;
      const shardwise::Buffer workspace = pool_.take(static_cast<std::size_t>(bytes));
      const float time = milliseconds_of(plan, pack(pointers, workspace.data()));
      if (time == std::numeric_limits<float>::infinity()) continue;
      engines.push_back(
          {std::move(config), std::move(plan), static_cast<std::size_t>(bytes), time});
    }
    return engines;
  }

  /// Of five runs after one that loads the kernel; infinite if the library refuses.
  float milliseconds_of(const CudnnDescriptor& plan, const CudnnDescriptor& pack) {
    constexpr int runs = 5;
    if (launch(plan, pack) != CUDNN_STATUS_SUCCESS) return std::numeric_limits<float>::infinity();
    cuda::Event begin(cuda::Event::Use::time), end(cuda::Event::Use::time);
    begin.record(session_.stream().get());
    for (int run = 0; run < runs; ++run) cuda::check(launch(plan, pack), "cudnnBackendExecute");
    end.record(session_.stream().get());
    end.synchronize();
    return cuda::Event::milliseconds(begin, end);
  }

  cuda::Session& session_;
  shardwise::Pool pool_;
  shardwise::Buffer workspace_;
  std::optional<CudnnDescriptor> config_;  ///< what the plan was made of
  std::optional<CudnnDescriptor> plan_;
  std::vector<CudnnDescriptor> packs_;
};

}  // namespace by_hand
