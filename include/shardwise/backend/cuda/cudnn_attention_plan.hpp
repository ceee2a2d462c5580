#pragma once
// Which attentions cuDNN computes, and its plan of one pass.

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/cuda/cudnn_attention_graph.hpp"
#include "shardwise/backend/cuda/cudnn_operations.hpp"
#include "shardwise/backend/cuda/cudnn_plan.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

/// Whether each sample is one sequence, and its keys are here, and if a mask counts rows, its
/// queries too.
constexpr bool are_whole_samples(const AttentionTokens& tokens) {
  const auto& [queries, keys, sequences, causal, window] = tokens;
  return sequences.are_samples() && keys.here == keys.length &&
         (!causal || queries.here == queries.length);
}

/// Whether each key head is read by equally many neighbouring query heads.
constexpr bool are_whole_groups(const AttentionHeads& heads) {
  if (heads.keys == 0 || heads.queries % heads.keys != 0) return false;
  for (std::size_t head = 0; head < heads.queries; ++head)
    if (heads.key_of(head) != head / (heads.queries / heads.keys)) return false;
  return true;
}

/// The problem of a pass, if cuDNN has engines for it: it takes heads of up to 128 features in
/// steps of 8, and knows neither our dropout nor our soft cap, nor parts of sequences or groups.
template <class T, class Stream>
std::optional<AttentionProblem> cudnn_attention(const AttentionOperands<T, Stream>& of,
                                                AttentionPass pass) {
  const auto& [tokens, heads, scale, soft_cap, dropout, q, k, v] = of;
  const bool is_empty =
      tokens.queries.count() * heads.queries * heads.size == 0 || tokens.keys.count() == 0;
  const bool fits = heads.size % 8 == 0 && heads.size <= 128 && are_whole_groups(heads);
  if (is_empty || !fits || !are_whole_samples(tokens) || soft_cap != 0 || dropout.probability != 0)
    return std::nullopt;
  return AttentionProblem{pass,
                          dtype_v<T>,
                          tokens.queries.samples,
                          tokens.queries.here,
                          tokens.keys.here,
                          heads.queries,
                          heads.keys,
                          heads.size,
                          tokens.causal,
                          tokens.window < tokens.queries.here ? tokens.window : 0,
                          static_cast<float>(scale)};
}

/// How many samples of a backward pass fit in a workspace at once, or 0. The library keeps the
/// slopes of all scores there, and gradients of keys and values for each query head of a group.
constexpr std::size_t samples_at_once(const AttentionProblem& p, std::size_t workspace_bytes) {
  constexpr std::size_t tables = 1024, element = 2;
  const auto padded = [](std::size_t rows, std::size_t to) { return (rows + to - 1) / to * to; };
  const std::size_t rows = padded(p.query_rows, 64), columns = padded(p.key_rows, 128);
  const std::size_t gradients = p.query_heads == p.key_heads ? 0 : 2 * columns * p.size;
  const std::size_t sample = p.query_heads * (rows * columns + gradients) * element;
  return workspace_bytes < tables ? 0 : std::min(p.samples, (workspace_bytes - tables) / sample);
}

/// A tensor on the device, for a run of a plan.
struct AttentionPointer {
  AttentionTensor tensor;
  const void* data;
};

/// The plan of one pass. The library compiles most of these when the plan is made, which takes
/// about half a second.
class CudnnAttentionPlan {
 public:
  /// Nothing if the library has no engine that keeps our promises within this workspace.
  template <class Device>
  static std::optional<CudnnAttentionPlan> of(const Device& device, const AttentionProblem& problem,
                                              std::size_t workspace_bytes) {
    const AttentionGraph graph(problem);
    const DescribedOperations described(graph.operations());
    std::vector<CudnnPlan> plans =
        CudnnPlan::usable(device, graph_of(device, described.operations()), problem.dtype,
                          {.tf32 = false, .workspace_bytes = workspace_bytes}, 1,
                          [](const CudnnDescriptor&) { return false; });
    if (plans.empty()) return std::nullopt;
    return CudnnAttentionPlan(std::move(plans.front()), graph.operations());
  }
  static std::optional<CudnnAttentionPlan> of(Session& session, const AttentionProblem& problem) {
    return of(DeviceOfHandle{session.cudnn()}, problem, session.convolution_workspace_bytes());
  }

  const CudnnPlan& plan() const { return plan_; }
  std::size_t workspace_bytes() const { return plan_.workspace_bytes(); }

  /// Enqueues the pass on the session's stream; returns the library's status. `pointers` has all
  /// tensors in memory of the graph, and no others.
  cudnnStatus_t launch(Session& session, std::span<const AttentionPointer> pointers,
                       void* workspace) const {
    constexpr std::size_t most = 24;  // tensors and numbers of a graph
    std::array<std::int64_t, most> ids{};
    std::array<void*, most> data{};
    std::size_t count = 0;
    for (const auto& [tensor, at] : pointers) {
      ids[count] = static_cast<std::int64_t>(tensor);
      data[count++] = const_cast<void*>(at);
    }
    for (const auto& [id, number] : numbers_) {
      ids[count] = id;
      data[count++] = const_cast<float*>(&number);
    }
    return plan_.launch(session, pointer_pack(std::span(ids).first(count),
                                              std::span(data).first(count), workspace));
  }

 private:
  CudnnAttentionPlan(CudnnPlan&& plan, const OperationGraph& graph) : plan_(std::move(plan)) {
    for (const GraphTensor& tensor : graph.tensors())
      if (tensor.number) numbers_.emplace_back(tensor.id, *tensor.number);
  }

  CudnnPlan plan_;
  std::vector<std::pair<std::int64_t, float>> numbers_;  ///< by their names
};

}  // namespace shardwise::detail::cuda
