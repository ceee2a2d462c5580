#pragma once
// The loss of a step that is recorded, which stays on the device.

#include <concepts>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/train/loss.hpp"
#include "shardwise/train/losses.hpp"
#include "shardwise/train/mesh_loss.hpp"

namespace shardwise::detail {

/// *to = *sum / divisor.
struct Divide {
  const double* sum;
  double divisor;
  double* to;

  constexpr void operator()(std::size_t) const { *to = *sum / divisor; }
};

/// *to += *term.
struct AddTerm {
  const double* term;
  double* to;

  constexpr void operator()(std::size_t) const { *to += *term; }
};

/// Where the loss of a recorded step is computed, in the backend's memory.
struct RecordedLoss {
  NumbersOfSlice of_output{};  ///< of the rank's slice of one output, then of all slices
  double sum = 0;              ///< of the losses of several outputs
};

/// Writes the loss for a prediction to `there` and returns its address; writes the gradient.
/// Nothing is read on the host, so it can be recorded; sizes and targets were checked by a step
/// before.
/// sends    as loss_of
template <class Context, class T, Layout L, class Target, Loss Chosen>
const double* put_loss_of(Run<Context>& run, const View<const T, L>& prediction,
                          const Target& target, const Chosen& loss, BatchInStep in_step,
                          Value<accumulate_t<T>, dual_t<L>>& gradient, RecordedLoss* there) {
  constexpr bool is_on_mesh = MeshCommunicator<typename Context::communicator>;
  if constexpr (is_on_mesh) in_step = slice_in_step(run, prediction, in_step);
  const auto result = loss_of_slice(run, prediction, target, loss, in_step, gradient, true);
  constexpr bool is_read = std::same_as<decltype(result), const double>;
  static_assert(!is_read || !DeviceBackend<typename Context::backend>,
                "this loss reads a number from the device in each step, which no recording "
                "holds. Let it return `auto`, and what frame.sum or frame.sum_of_ranks gives, "
                "over a number.");
  const std::span<double> numbers(there->of_output);
  if constexpr (is_on_mesh) fill(run.backend, numbers.data(), numbers.size(), 0.0);
  if constexpr (!is_read)
    run.backend.for_each(1, Divide{result.data(), result.divisor(), numbers.data()});
  if constexpr (is_on_mesh) reduce_over_samples(run, name_of_slices, numbers);
  return numbers.data();
}

/// The same for several outputs: the sum of their losses.
template <class Context, class... Predictions, class... Targets, class... Ls, class... Gradients>
const double* put_loss_of(Run<Context>& run, const std::tuple<Predictions...>& predictions,
                          const std::tuple<Targets...>& targets, const std::tuple<Ls...>& losses,
                          BatchInStep in_step, std::tuple<Gradients...>& gradients,
                          RecordedLoss* there) {
  double* const sum = &there->sum;
  fill(run.backend, sum, 1, 0.0);
  [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    const auto add = [&](const double* one) { run.backend.for_each(1, AddTerm{one, sum}); };
    (add(put_loss_of(run, std::get<Ks>(predictions), std::get<Ks>(targets), std::get<Ks>(losses),
                     in_step, std::get<Ks>(gradients), there)),
     ...);
  }
  (std::index_sequence_for<Ls...>{});
  return sum;
}

}  // namespace shardwise::detail
