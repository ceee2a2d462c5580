#pragma once
// A graph with the engine that was chosen for it.

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/backend/cuda/cudnn_descriptor.hpp"
#include "shardwise/backend/cuda/cudnn_graph.hpp"
#include "shardwise/backend/cuda/device_memory.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::cuda {

/// Where the tensors of a graph are, by the names that it gives them. The library writes one of
/// them.
struct ConvolutionPointers {
  const void* x;
  const void* w;
  const void* y;
};

/// Whether an engine gives the same bits in every run, so that ranks which do the same work stay
/// alike, and sums in accumulate_t what it should: without FFT and Winograd's transforms, which
/// round integers too, and without TF32 in float, unless that is allowed.
inline bool keeps_promises(const CudnnDescriptor& engine, Dtype dtype, bool tf32) {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> all{};
  const std::size_t count = engine.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, all.data(), all.size());
  return std::none_of(all.data(), all.data() + std::min(count, all.size()),
                      [&](cudnnBackendNumericalNote_t note) {
                        switch (note) {
                          case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
                          case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
                          case CUDNN_NUMERICAL_NOTE_FFT:
                          case CUDNN_NUMERICAL_NOTE_WINOGRAD:
                          case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
                          case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
                          case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
                            return true;
                          case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
                            return dtype != Dtype::float32 || !tf32;
                          case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
                            return dtype == Dtype::float32 && !tf32;
                          default:
                            return false;
                        }
                      });
}

/// What the library proposes for a graph, the best first.
inline std::vector<CudnnDescriptor> proposals(const CudnnDescriptor& graph,
                                              cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  // A heuristic that knows nothing about a graph fails, and the other one may still know.
  if (heuristic.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  const std::size_t count = heuristic.read_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, nullptr, 0);
  for (std::size_t i = 0; i < count; ++i)
    raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  const std::size_t written =
      heuristic.read_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, raw.data(), count);
  while (configs.size() > written) configs.pop_back();
  return configs;
}

/// What runs for a graph of one convolution. Running it allocates nothing of ours.
class CudnnPlan {
 public:
  /// Nothing if the library does not plan what it proposed.
  static std::optional<CudnnPlan> of(cudnnHandle_t handle, CudnnDescriptor&& config) {
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return std::nullopt;
    return CudnnPlan(std::move(config), std::move(plan));
  }

  std::size_t workspace_bytes() const { return workspace_bytes_; }

  cudnnStatus_t launch(Session& session, const ConvolutionPointers& pointers) const {
    const std::array<std::int64_t, 3> ids{'x', 'w', 'y'};
    const std::array<void*, 3> data{const_cast<void*>(pointers.x), const_cast<void*>(pointers.w),
                                    const_cast<void*>(pointers.y)};
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids.data(), ids.size());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data.data(), data.size());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, session.scratch(workspace_bytes_));
    pack.finalize("cudnnBackendFinalize of pointers");
    return cudnnBackendExecute(session.cudnn(), plan_.get(), pack.get());
  }

  void run(Session& session, const ConvolutionPointers& pointers) const {
    check(launch(session, pointers), "cudnnBackendExecute");
  }

 private:
  CudnnPlan(CudnnDescriptor&& config, CudnnDescriptor&& plan)
      : config_(std::move(config)), plan_(std::move(plan)) {
    std::int64_t bytes = 0;
    plan_.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &bytes, 1);
    workspace_bytes_ = static_cast<std::size_t>(bytes);
  }

  CudnnDescriptor config_;  ///< what the plan was made of
  CudnnDescriptor plan_;
  std::size_t workspace_bytes_ = 0;
};

/// Up to `most` plans for a graph that may be used, the best first by the library's heuristics. One
/// that takes more workspace than the options allow is used if there is no other: engines without
/// workspace are not there for all convolutions.
inline std::vector<CudnnPlan> usable_plans(Session& session, const CudnnDescriptor& graph,
                                           Dtype dtype, std::size_t most) {
  std::vector<CudnnPlan> plans;
  std::optional<CudnnPlan> larger;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (CudnnDescriptor& config : proposals(graph, mode)) {
      CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      cudnnBackendDescriptor_t raw = engine.get();
      config.read_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, &raw, 1);
      if (!keeps_promises(engine, dtype, session.options().tf32)) continue;
      std::optional<CudnnPlan> plan = CudnnPlan::of(session.cudnn(), std::move(config));
      if (!plan) continue;
      if (plan->workspace_bytes() > session.options().convolution_workspace_bytes) {
        if (!larger) larger = std::move(plan);
        continue;
      }
      plans.push_back(std::move(*plan));
      if (plans.size() == most) return plans;
    }
    if (!plans.empty()) return plans;
  }
  if (larger) plans.push_back(std::move(*larger));
  return plans;
}

/// Which product a plan is for, and the size of its result.
struct ConvolutionResult {
  ConvolutionProduct product;
  std::size_t bytes;
};

/// The tensor that the library writes.
inline const void*& result_among(ConvolutionPointers& pointers, ConvolutionProduct product) {
  switch (product) {
    case ConvolutionProduct::backward_input:
      return pointers.x;
    case ConvolutionProduct::backward_weight:
      return pointers.w;
    case ConvolutionProduct::forward:
      break;
  }
  return pointers.y;
}

/// The fastest of the plans, tried on the tensors but for the result. Those that then fail do not
/// count.
/// throws  backend_error if all fail, or while the stream is captured into a graph
inline CudnnPlan fastest(Session& session, std::vector<CudnnPlan>&& plans,
                         ConvolutionPointers pointers, const ConvolutionResult& result) {
  constexpr int runs = 5;
  require_no_capture(session.stream().get(), "engines cannot be timed");
  const DeviceBuffer trial(session.memory(), result.bytes);
  result_among(pointers, result.product) = trial.data();
  Event begin(Event::Use::time);
  Event end(Event::Use::time);
  std::optional<std::size_t> best;
  float best_time = std::numeric_limits<float>::infinity();
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    status = plans[i].launch(session, pointers);  // the first run of a kernel loads it
    if (status != CUDNN_STATUS_SUCCESS) continue;
    begin.record(session.stream().get());
    for (int run = 0; run < runs; ++run) plans[i].run(session, pointers);
    end.record(session.stream().get());
    end.synchronize();
    const float time = Event::milliseconds(begin, end);
    if (!best || time < best_time) best_time = time, best = i;
  }
  if (!best) check(status, "cudnnBackendExecute");
  return std::move(plans[*best]);
}

/// The plan for a graph: the best by the library's heuristics, or by time where the options say so;
/// none if the library has none.
inline std::optional<CudnnPlan> choose_plan(Session& session, const CudnnDescriptor& graph,
                                            Dtype dtype, const ConvolutionPointers& pointers,
                                            const ConvolutionResult& result) {
  const bool times = session.options().time_candidates;
  std::vector<CudnnPlan> plans = usable_plans(session, graph, dtype, times ? 8 : 1);
  if (plans.empty()) return std::nullopt;
  if (plans.size() == 1) return std::move(plans.front());
  return fastest(session, std::move(plans), pointers, result);
}

/// The error for a convolution that has no plan.
[[noreturn]] inline void refuse_without_plan() {
  throw backend_error(
      "cuDNN " + std::to_string(cudnnGetVersion()) +
      " has no engine for it on this device that gives the same bits in every run and keeps its "
      "sums in the dtype that it should: use another dtype, other sizes, or a newer cuDNN");
}

}  // namespace shardwise::detail::cuda
