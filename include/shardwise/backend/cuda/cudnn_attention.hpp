#pragma once
// Attention on a GPU.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "shardwise/backend/cuda/cudnn_attention_graph.hpp"
#include "shardwise/backend/cuda/cudnn_attention_plan.hpp"
#include "shardwise/backend/cuda/cudnn_check.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/location.hpp"

namespace shardwise::detail::cuda {

/// A dtype in which cuDNN computes attention.
template <class T>
concept TwoByteReal = std::same_as<T, bf16> || std::same_as<T, fp16>;

/// The plans of a backend object, for the last different calls of each pass. A backend that has no
/// plan for a call keeps that too.
template <class Plan>
struct AttentionPlans {
  std::array<PlanCache<AttentionProblem, std::optional<Plan>>, 3> of_pass;
};

/// Pieces of one block of memory, one behind the other.
class Pieces {
 public:
  /// The begin of the next piece, in bytes.
  constexpr std::size_t add(std::size_t bytes) {
    constexpr std::size_t alignment = 256;
    const std::size_t begin = bytes_;
    bytes_ += (bytes + alignment - 1) / alignment * alignment;
    return begin;
  }
  /// Of all pieces.
  constexpr std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// See AttentionBackend; all tensors are on the device, and a call returns when its work is on the
/// stream. `Backend` has session() and for_each, as in `DeviceBackend`.
///
/// cuDNN computes what it has engines for, see `cudnn_attention`, if all tensors are aligned to 16
/// bytes and the device has compute capability 8.0; plain loops compute the rest. Engines give the
/// same bits in every run, which takes a workspace of all scores: a backward pass does as many
/// samples at once as the backend's limit of workspaces has room for, and runs by loops if there is
/// none for one. It computes y again. Plans are kept for the last different calls; those of a
/// recorded CUDA graph as long as the backend object, since the graph may run their code. Tests
/// replace `Plan`.
///
/// throws   backend_error if the library fails, memory_error
template <class Backend, TwoByteReal T, class Plan = CudnnAttentionPlan>
class CudnnAttention {
 public:
  explicit CudnnAttention(Backend& backend) : backend_(&backend) {}

  template <class Stream>
  void forward(const AttentionOperands<T, Stream>& of, T* y) {
    in_place("forward", of, [&] {
      if (!forward_by_library(of, y)) attention_by_loops(*backend_, of, y);
    });
  }

  template <class Stream>
  void backward(const AttentionOperands<T, Stream>& of, const T* dy, T* dq, T* dk, T* dv) {
    in_place("backward", of, [&] {
      if (backward_by_library(of, dy, dq, dk, dv)) return;
      void* const rows = session().scratch(softmax_bytes(of));
      attention_gradients_by_loops(*backend_, attention_slopes(of, dy, rows), dq, dk, dv);
    });
  }

 private:
  using Id = AttentionTensor;

  /// The tensors of some samples; gradients that nobody wants are null.
  struct Samples {
    const T *q, *k, *v, *dy;
    T *dq, *dk, *dv;
  };

  Session& session() { return backend_->session(); }

  template <class Stream>
  bool forward_by_library(const AttentionOperands<T, Stream>& of, T* y) {
    const auto problem = cudnn_attention(of, AttentionPass::forward);
    if (!problem || !can_read({of.q, of.k, of.v, y})) return false;
    const Plan* const plan = plan_of(*problem);
    if (plan == nullptr) return false;
    launch(*plan, {{Id::q, of.q}, {Id::k, of.k}, {Id::v, of.v}, {Id::y, y}},
           session().scratch(plan->workspace_bytes()));
    return true;
  }

  /// If it returns false, it may have computed some samples.
  template <class Stream>
  bool backward_by_library(const AttentionOperands<T, Stream>& of, const T* dy, T* dq, T* dk,
                           T* dv) {
    auto problem = cudnn_attention(of, AttentionPass::backward);
    if (!problem || !can_read({of.q, of.k, of.v, dy, dq, dk, dv})) return false;
    const std::size_t at_once = samples_at_once(*problem, session().convolution_workspace_bytes());
    if (at_once == 0) return false;
    const std::size_t queries = problem->query_rows * problem->query_heads * problem->size;
    const std::size_t keys = problem->key_rows * problem->key_heads * problem->size;
    const auto behind = [](auto* p, std::size_t n) { return p == nullptr ? p : p + n; };
    const std::size_t all = problem->samples;
    for (std::size_t i = 0; i < all; i += at_once) {
      problem->samples = std::min(at_once, all - i);
      const Samples samples{of.q + i * queries,  of.k + i * keys,         of.v + i * keys,
                            dy + i * queries,    behind(dq, i * queries), behind(dk, i * keys),
                            behind(dv, i * keys)};
      if (!backward_of(*problem, samples)) return false;
    }
    return true;
  }

  bool backward_of(const AttentionProblem& problem, Samples of) {
    AttentionProblem again = problem;
    again.pass = AttentionPass::forward_with_sums;
    const Plan* const forward = plan_of(again);
    const Plan* const backward = plan_of(problem);
    if (forward == nullptr || backward == nullptr) return false;

    const std::size_t rows = problem.samples * problem.query_heads * problem.query_rows;
    const std::size_t key_rows = problem.samples * problem.key_heads * problem.key_rows;
    Pieces pieces;
    const std::size_t y_at = pieces.add(rows * problem.size * sizeof(T));
    const std::size_t sums_at = pieces.add(rows * sizeof(float));
    const std::size_t means_at = pieces.add(rows * sizeof(float));
    const bool wants_all = of.dq != nullptr && of.dk != nullptr && of.dv != nullptr;
    const std::size_t unwanted_at =
        pieces.add(wants_all ? 0 : std::max(rows, key_rows) * problem.size * sizeof(T));
    const std::size_t workspace_at =
        pieces.add(std::max(forward->workspace_bytes(), backward->workspace_bytes()));
    std::byte* const memory = static_cast<std::byte*>(session().scratch(pieces.bytes()));
    void *const y = memory + y_at, *const sums = memory + sums_at, *const means = memory + means_at;
    const auto wanted = [&](T* gradient) -> const void* {
      return gradient == nullptr ? memory + unwanted_at : static_cast<const void*>(gradient);
    };
    launch(*forward, {{Id::q, of.q}, {Id::k, of.k}, {Id::v, of.v}, {Id::y, y}, {Id::sums, sums}},
           memory + workspace_at);
    launch(*backward,
           {{Id::q, of.q},
            {Id::k, of.k},
            {Id::v, of.v},
            {Id::y, y},
            {Id::sums, sums},
            {Id::means, means},
            {Id::dy, of.dy},
            {Id::dq, wanted(of.dq)},
            {Id::dk, wanted(of.dk)},
            {Id::dv, wanted(of.dv)}},
           memory + workspace_at);
    return true;
  }

  void launch(const Plan& plan, std::initializer_list<AttentionPointer> pointers, void* workspace) {
    check(plan.launch(session(), std::span(pointers.begin(), pointers.size()), workspace),
          "cudnnBackendExecute");
  }

  /// Null if the library has none.
  const Plan* plan_of(const AttentionProblem& problem) {
    auto& plans = session().template attention_plans<AttentionPlans<Plan>>();
    const bool stays = is_captured(session().stream().get());
    const std::optional<Plan>& plan = plans.of_pass[static_cast<std::size_t>(problem.pass)].get(
        problem, [&] { return Plan::of(session(), problem); }, stays);
    return plan ? &*plan : nullptr;
  }

  bool can_read(std::initializer_list<const T*> tensors) {
    constexpr std::size_t alignment = 16;
    return session().device().major >= 8 &&
           std::all_of(tensors.begin(), tensors.end(), [](const T* p) {
             return reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
           });
  }

  template <class Stream, class F>
  void in_place(const char* what, const AttentionOperands<T, Stream>& of, F f) {
    const DescribedLocation here([&] {
      return "attention " + std::string(what) + " of " + std::to_string(of.tokens.queries.count()) +
             " rows, " + std::to_string(of.heads.queries) + " heads of " +
             std::to_string(of.heads.size) + " features in " + std::string(name(dtype_v<T>));
    });
    const OnDevice on(session().device().index);
    f();
  }

  Backend* backend_;
};

}  // namespace shardwise::detail::cuda
