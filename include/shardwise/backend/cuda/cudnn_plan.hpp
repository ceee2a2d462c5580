#pragma once
// A graph of products and its chosen engine.

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/cuda/cudnn_convolution_graph.hpp"
#include "shardwise/backend/cuda/cudnn_descriptor.hpp"
#include "shardwise/backend/cuda/cudnn_operations.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::cuda {

/// The tensors of a convolution on the device. The library writes one of them.
struct ConvolutionPointers {
  const void* x;
  const void* w;
  const void* y;
};

/// Tells the library the device to plan for: that of a handle. Tests replace it by the description
/// of a device that does not exist.
struct DeviceOfHandle {
  cudnnHandle_t handle;

  void tell_graph(CudnnDescriptor& graph) const {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  }
  void tell_heuristic(CudnnDescriptor&) const {}  // the heuristic knows it from the graph
  void tell_plan(CudnnDescriptor& plan) const {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
  }
};

/// The limits of a plan: whether it may round float factors to TF32, and its workspace.
struct PlanLimits {
  bool tf32;
  std::size_t workspace_bytes;
};

/// Whether an engine with this numerical note is allowed. It must give the same bits in every run,
/// so that ranks that do the same work stay equal, and sum in accumulate_t. So there is no FFT and
/// no Winograd transform, which round integers too, and no TF32 in float unless the limits allow
/// it.
constexpr bool keeps_promises(cudnnBackendNumericalNote_t note, Dtype dtype, bool tf32) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
      return false;
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      return dtype == Dtype::float32 && tf32;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      return dtype != Dtype::float32 || tf32;
    default:
      return true;
  }
}

/// The engine of a proposal.
inline CudnnDescriptor engine_of(const CudnnDescriptor& proposal) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  proposal.read_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, &raw, 1);
  return engine;
}

/// The library's notes about the engine of a proposal.
inline std::vector<cudnnBackendNumericalNote_t> notes_of(const CudnnDescriptor& proposal) {
  const CudnnDescriptor engine = engine_of(proposal);
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const std::size_t count =
      engine.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, notes.data(), notes.size());
  notes.resize(std::min(count, notes.size()));
  return notes;
}

inline bool keeps_promises(const CudnnDescriptor& proposal, Dtype dtype, bool tf32) {
  const std::vector<cudnnBackendNumericalNote_t> notes = notes_of(proposal);
  return std::all_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    return keeps_promises(note, dtype, tf32);
  });
}

/// Whether an engine is known to compute a convolution wrongly. Engine 1 for the gradient of
/// weights is, if an axis has another padding before it than behind it: seen with cuDNN 9.14 on an
/// H200, in every dtype.
inline bool is_wrong(const CudnnDescriptor& proposal, const ConvolutionProblem& problem) {
  const auto& space = problem.call.space;
  const bool differs = std::any_of(space.begin(), space.end(), [](const SpatialAxis& axis) {
    return axis.before != padding_behind(axis);
  });
  if (problem.product != ConvolutionProduct::backward_weight || !differs) return false;
  std::int64_t number = -1;
  engine_of(proposal).read(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &number, 1);
  return number == 1;
}

/// A graph of operations, which must outlive it.
template <class Device>
CudnnDescriptor graph_of(const Device& device, const std::vector<CudnnDescriptor>& operations) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  device.tell_graph(graph);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  graph.finalize("cudnnBackendFinalize of a graph");
  return graph;
}

/// The library's proposals for a graph, the best first: engines with their settings.
template <class Device>
std::vector<CudnnDescriptor> proposals(const Device& device, const CudnnDescriptor& graph,
                                       cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  device.tell_heuristic(heuristic);
  // A heuristic without results fails; the other one may still have some.
  if (heuristic.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  std::vector<CudnnDescriptor> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  const std::size_t count = heuristic.read_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, nullptr, 0);
  for (std::size_t i = 0; i < count; ++i)
    raw.push_back(all.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  const std::size_t written =
      heuristic.read_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, raw.data(), count);
  while (all.size() > written) all.pop_back();
  return all;
}

/// The tensors of a call by their names in the graph, and its workspace, for a plan.
inline CudnnDescriptor pointer_pack(std::span<const std::int64_t> ids, std::span<void* const> data,
                                    void* workspace) {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids.data(), ids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data.data(), data.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  pack.finalize("cudnnBackendFinalize of pointers");
  return pack;
}
inline CudnnDescriptor pointer_pack(const ConvolutionPointers& pointers, void* workspace) {
  const std::array<std::int64_t, 3> ids{'x', 'w', 'y'};
  const std::array<void*, 3> data{const_cast<void*>(pointers.x), const_cast<void*>(pointers.w),
                                  const_cast<void*>(pointers.y)};
  return pointer_pack(ids, data, workspace);
}

/// throws  backend_error
[[noreturn]] inline void refuse_without_plan() {
  throw backend_error(
      "cuDNN " + std::to_string(cudnnGetVersion()) +
      " has no engine for it on this device that gives the same bits in every run, keeps its sums "
      "in the dtype that it should, and does with CudaOptions::convolution_workspace_bytes: use "
      "another dtype, other sizes, or a newer cuDNN");
}

/// The plan of a graph. A run does not allocate in shardwise.
class CudnnPlan {
 public:
  /// Nothing if the library rejects its own proposal.
  template <class Device>
  static std::optional<CudnnPlan> of(const Device& device, CudnnDescriptor&& proposal) {
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    device.tell_plan(plan);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, proposal);
    if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return std::nullopt;
    return CudnnPlan(std::move(proposal), std::move(plan));
  }

  /// Up to `most` allowed plans for a graph of products in `dtype`, the best first by the library's
  /// heuristics; if there are none, from its fallback engines. None for which refuses(proposal).
  template <class Device, class Refuses>
  static std::vector<CudnnPlan> usable(const Device& device, const CudnnDescriptor& graph,
                                       Dtype dtype, const PlanLimits& limits, std::size_t most,
                                       Refuses refuses) {
    std::vector<CudnnPlan> plans;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      for (CudnnDescriptor& proposal : proposals(device, graph, mode)) {
        if (!keeps_promises(proposal, dtype, limits.tf32) || refuses(proposal)) continue;
        std::optional<CudnnPlan> plan = of(device, std::move(proposal));
        if (!plan || plan->workspace_bytes() > limits.workspace_bytes) continue;
        plans.push_back(std::move(*plan));
        if (plans.size() == most) return plans;
      }
      if (!plans.empty()) break;
    }
    return plans;
  }

  /// The same for a convolution.
  /// throws   backend_error if there are none
  template <class Device>
  static std::vector<CudnnPlan> usable(const Device& device, const ConvolutionProblem& problem,
                                       const PlanLimits& limits, std::size_t most) {
    const DescribedOperations described(convolution_graph(problem));
    const CudnnDescriptor graph = graph_of(device, described.operations());
    const auto refuses = [&](const CudnnDescriptor& proposal) {
      return is_wrong(proposal, problem);
    };
    std::vector<CudnnPlan> plans = usable(device, graph, problem.dtype, limits, most, refuses);
    if (plans.empty()) refuse_without_plan();
    return plans;
  }
  static std::vector<CudnnPlan> usable(Session& session, const ConvolutionProblem& problem,
                                       std::size_t most) {
    return usable(DeviceOfHandle{session.cudnn()}, problem,
                  {session.options().tf32, session.convolution_workspace_bytes()}, most);
  }

  /// The engine with its settings of this plan.
  const CudnnDescriptor& proposal() const { return proposal_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// Enqueues the work on the session's stream; returns the library's status.
  cudnnStatus_t launch(Session& session, const ConvolutionPointers& pointers) const {
    return launch(session, pointer_pack(pointers, session.scratch(workspace_bytes_)));
  }
  cudnnStatus_t launch(Session& session, const CudnnDescriptor& pack) const {
    return cudnnBackendExecute(session.cudnn(), plan_.get(), pack.get());
  }

 private:
  CudnnPlan(CudnnDescriptor&& proposal, CudnnDescriptor&& plan)
      : proposal_(std::move(proposal)), plan_(std::move(plan)) {
    std::int64_t bytes = 0;
    plan_.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &bytes, 1);
    workspace_bytes_ = static_cast<std::size_t>(bytes);
  }

  CudnnDescriptor proposal_;
  CudnnDescriptor plan_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace shardwise::detail::cuda
