#pragma once
// The norm of all gradients together, and gradients that are scaled down to a given norm.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/precision.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/settle.hpp"
#include "shardwise/model/shares.hpp"
#include "shardwise/model/stages.hpp"

namespace shardwise {

/// The root of the sum of squares, or the largest magnitude, which is infinite if there is a NaN.
enum class Norm : std::uint8_t { euclidean, infinity };

namespace detail {

/// The square of a number.
template <Real T>
struct Square {
  const T* numbers;

  constexpr double operator()(std::size_t i) const {
    const double x = rounded<double>(numbers[i]);
    return x * x;
  }
};

/// The magnitude of a number, infinite for a NaN, since the maximum of a NaN and a number may be
/// the number.
template <Real T>
struct Magnitude {
  const T* numbers;

  constexpr double operator()(std::size_t i) const {
    const double x = std::abs(rounded<double>(numbers[i]));
    return x == x ? x : std::numeric_limits<double>::infinity();
  }
};

/// to = factor from, rounded once; both may be the same memory.
template <Real To, Real From>
struct Scale {
  using A = accumulate_t<From>;

  const From* from;
  To* to;
  A factor;

  constexpr void operator()(std::size_t i) const {
    to[i] = static_cast<To>(static_cast<A>(from[i]) * factor);
  }
};

/// Throws argument_error if there are no gradients, or if they have a loss scale.
void require_plain_gradients(GradientState gradients, const StepUnderWay* step, const char* who);

/// Throws argument_error for a norm that gradients cannot be scaled down to.
void check_clip_norm(double max_norm, const char* who);

/// The norm, from its square or, for Norm::infinity, from itself.
template <class A>
constexpr A norm_of(A reduced, Norm norm) {
  return norm == Norm::infinity ? reduced : std::sqrt(reduced);
}

/// The factor that scales gradients of this norm down to max_norm.
constexpr double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

/// A function of the elements of some intervals, one after the other.
template <class F, std::size_t N>
struct InShares {
  F f;
  std::array<Interval, N> shares;

  constexpr double operator()(std::size_t i) const {
    std::size_t share = 0;
    while (i >= shares[share].size) i -= shares[share++].size;
    return f(shares[share].offset + i);
  }
};

inline std::string name_of_norm() { return "norm of the gradients"; }

/// *out = the sum of the squares of some numbers, or the largest magnitude; in(term) is the term of
/// element i of `count`.
template <class B, class G, class In>
void put_norm_of(B& backend, std::size_t count, const G* numbers, Norm norm, double* out, In in) {
  if (norm == Norm::infinity)
    reduce(backend, count, 0.0, in(Magnitude<G>{numbers}), Largest{}, out);
  else
    reduce(backend, count, 0.0, in(Square<G>{numbers}), Plus{}, out);
}

/// Of the gradients of the rank's shares. Each rank along `data` takes a share of those that all of
/// them hold, so the result has the same bits if a rank has only its shares. What several stages of
/// a pipeline have counts in the first of them.
template <class Context>
void put_norm_of_shares(Run<Context>& run, Norm norm, double* out) {
  std::array<Interval, holdings.size()> shares;
  const Place along =
      run.parameters.stores_share_of_gradients() ? Place{} : run.all_ranks.place()[MeshAxis::data];
  std::size_t count = 0;
  for (const Holding holding : holdings) {
    if (!is_split(holding) && run.place().rank != 0) continue;
    if (is_on_stages(holding) && !run.stage.counts_tied) continue;
    Interval& one = shares[static_cast<std::size_t>(holding)];
    one = share_of(run.parameters.gradient_layout().elements_of(holding), along);
    count += one.size;
  }
  put_norm_of(run.backend, count, run.parameters.gradients().data(), norm, out, [&](auto term) {
    return InShares<decltype(term), holdings.size()>{term, shares};
  });
}

/// *out = the sum of the squares of the gradients of a model on this rank, or the largest
/// magnitude. What ranks hold alike counts on one of them.
template <class Context>
void put_norm_here(Run<Context>& run, Norm norm, double* out) {
  using G = typename Context::precision::gradient;
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    put_norm_of_shares(run, norm, out);
  } else {
    // Parameters that all ranks hold alike are before the split ones, and count on rank 0 only.
    const std::span<const G> counted =
        run.place().rank == 0 ? run.parameters.gradients() : run.parameters.split();
    put_norm_of(run.backend, counted.size(), counted.data(), norm, out,
                [](auto term) { return term; });
  }
}

/// The same over all ranks, for each stage of a pipeline; norms are in the backend's memory, one
/// for each stage. Gradients must be settled and collected. A collective.
template <class Context, std::size_t N>
void put_norms(const Runs<Context, N>& runs, Norm norm, std::span<double> norms) {
  auto& run = runs.first();
  const Reduction over_ranks = norm == Norm::infinity ? Reduction::max : Reduction::sum;
  if (norms.size() > N) fill(run.backend, norms.data(), norms.size(), 0.0);
  for (Run<Context>* one : runs.of) put_norm_here(*one, norm, norms.data() + one->stage.number);
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    reduce_along(run, MeshAxis::data, name_of_norm, norms, over_ranks);
    reduce_over_stages(run, name_of_norm, norms, over_ranks);
  }
  all_reduce(run, name_of_norm, norms, over_ranks);
}

/// The norm of the settled gradients of all ranks and stages. A collective; the same bits whatever
/// stages a rank has.
template <class Context, std::size_t N>
double norm_of_all(const Runs<Context, N>& runs, Norm norm) {
  for (Run<Context>* one : runs.of) one->parameters.collect(one->backend);
  auto& run = runs.first();
  const std::size_t stages = run.stage.count;
  const Buffer memory = run.pool.take(stages * sizeof(double));
  const std::span<double> there(static_cast<double*>(memory.data()), stages);
  put_norms(runs, norm, there);
  double all = 0;
  for (std::size_t i = 0; i < stages; ++i) {
    double here = 0;
    to_host(run.backend, there.data() + i, 1, &here);
    all = norm == Norm::infinity ? std::max(all, here) : all + here;
  }
  return norm_of(all, norm);
}

/// Scales all gradients down to max_norm, and returns their norm before. A collective, as
/// `clip_gradients`.
template <class Context, std::size_t N>
double clip_all(const Runs<Context, N>& runs, double max_norm, Norm norm) {
  using G = typename Context::precision::gradient;
  const double found = norm_of_all(runs, norm);
  if (!std::isfinite(found)) {
    throw numeric_error(
        {"the norm of all gradients is ", found,
         ", though the loss is finite: a gradient overflowed on its way back. Try a "
         "smaller learning rate or, for fp16, a LossScaler"});
  }
  const double factor = clip_factor(found, max_norm);
  if (factor == 1) return found;
  for (Run<Context>* one : runs.of) {
    const std::span<G> all = one->parameters.gradients();
    one->backend.for_each(
        all.size(), Scale<G, G>{all.data(), all.data(), static_cast<accumulate_t<G>>(factor)});
  }
  return found;
}

}  // namespace detail

/// The norm of all gradients of the step, over all ranks: a split parameter counts with the block
/// of every rank, any other parameter counts once. Settles gradients first, if they are not settled
/// yet. A collective; the same bits on every rank. For a stage of a pipeline it is the norm of all
/// stages, and all of them call it: with the model of the stage, or, where a rank has several, with
/// its PipelineChunks.
/// sends    `plan().settle`, and an all-reduce of one double; on a mesh two, along `data` and
///          `tensor`; for stages a third, along `pipeline`, each of one double for each stage
/// throws   argument_error without a batch, for gradients with a loss scale, and for the model of
///          one of several stages on a rank
template <class M>
double gradient_norm(M& models, Norm norm = Norm::euclidean) {
  const auto runs = detail::runs_of(models);
  detail::require_all_stages(runs, "gradient_norm");
  detail::require_plain_gradients(runs.first().step.gradients, runs.first().step.under_way,
                                  "gradient_norm");
  detail::settle(runs);
  return detail::norm_of_all(runs, norm);
}

/// Multiplies all gradients by max_norm / (norm + 1e-6) if that is below 1, and returns their norm
/// before this. A collective, as `gradient_norm`.
/// sends    as `gradient_norm`
/// throws   as `gradient_norm`; argument_error for a max_norm that is not above 0; numeric_error,
///          on every rank, if the norm is not finite: the gradients are then settled but not scaled
/// source   torch.nn.utils.clip_grad_norm_ with error_if_nonfinite
template <class M>
double clip_gradients(M& models, double max_norm, Norm norm = Norm::euclidean) {
  detail::check_clip_norm(max_norm, "clip_gradients");
  const auto runs = detail::runs_of(models);
  detail::require_all_stages(runs, "clip_gradients");
  detail::require_plain_gradients(runs.first().step.gradients, runs.first().step.under_way,
                                  "clip_gradients");
  detail::settle(runs);
  return detail::clip_all(runs, max_norm, norm);
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void require_plain_gradients(GradientState gradients, const StepUnderWay* step,
                                              const char* who) {
  if (gradients == GradientState::none) {
    throw argument_error({who, " needs the gradients of at least one batch of this step"});
  }
  if (step != nullptr && step->loss_scale != 1) {
    throw argument_error({who, ": the gradients are those of the loss times ", step->loss_scale,
                          ", which the Step takes out again when it finishes: begin it with the "
                          "clip_norm that is wanted, and its finish() gives the norm"});
  }
}

SHARDWISE_INLINE void check_clip_norm(double max_norm, const char* who) {
  if (max_norm > 0 && std::isfinite(max_norm)) return;
  throw argument_error(
      {who, ": the norm to cut down to is ", max_norm, "; it must be a number above 0"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
