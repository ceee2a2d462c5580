#pragma once
// One training step: forward, loss, backward, and new parameters.

#include <cmath>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/train/clip.hpp"
#include "shardwise/train/loss.hpp"
#include "shardwise/train/loss_scaler.hpp"
#include "shardwise/train/losses.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

/// What a step does besides forward, backward and update. The same on every rank.
struct StepOptions {
  std::optional<double> clip_norm{};  ///< the most that the norm of all gradients may be
  Norm norm = Norm::euclidean;        ///< which norm that is
  LossScaler* scaler = nullptr;       ///< each rank's own, which outlives the step

  /// What the scaler says, and 1 without one.
  double scale() const { return scaler == nullptr ? 1 : scaler->scale(); }
};

namespace detail {

/// Throws argument_error if the gradients of this step are under another loss scale than `options`.
template <class M>
void check_scale(const M& model, const StepOptions& options, const char* who) {
  if (model.gradient_scale() == options.scale()) return;
  throw argument_error({"the gradients of this step are those of the loss times ",
                        model.gradient_scale(), ", but ", who, " a loss scale of ", options.scale(),
                        ": give all calls of a step the same scaler"});
}

/// Runs `call`, which is part of a step; if it throws, the model forgets the step.
template <class M, class Call>
auto or_discard(M& model, Call&& call) {
  try {
    return call();
  } catch (...) {
    model.discard_step();
    throw;
  }
}

/// `gradient`, or each of a std::tuple of them, times `scale` in T, rounded once.
template <class T, class Context, class A, Layout L>
Value<T, L> scaled(Run<Context>& run, Value<A, L> gradient, double scale) {
  const auto multiply = [&](Value<T, L>& result) {
    run.backend.for_each(
        result.view().size(),
        Scale<T, A>{gradient.view().data(), result.writable().data(), static_cast<A>(scale)});
  };
  if constexpr (std::same_as<T, A>) {
    if (scale != 1) multiply(gradient);
    return gradient;
  } else {
    Value<T, L> result(run.pool, gradient.global(), run.place());
    multiply(result);
    return result;
  }
}

template <class T, class Context, class... Values>
auto scaled(Run<Context>& run, std::tuple<Values...>&& gradients, double scale) {
  return std::apply(
      [&](auto&... one) { return std::tuple{scaled<T>(run, std::move(one), scale)...}; },
      gradients);
}

/// The error for what cannot train.
template <class M, class Chosen>
consteval bool must_train() {
  static_assert(M::use::trains,
                "a training step needs gradients, and a model for ForwardOnly has none: make the "
                "Model with Train or TrainWithInputGradient.");
  must_be_loss<Chosen, tensors_of<typename M::output_layout>>();
  return true;
}

/// Runs the model forward, and returns what `loss` gives for its output, whose gradient it writes
/// to `gradient`.
template <class M, class Target, class Chosen>
auto forward_to_loss(M& model, typename M::input_view x, const Target& target, const Chosen& loss,
                     BatchShare share, loss_gradient_t<M>& gradient, bool is_recorded) {
  const auto prediction = model.forward(x);
  auto& run = model.run();
  const Observation here(run.observer, [] { return phase([] { return std::string("loss"); }); });
  return loss_of(run, prediction, target, loss, share, gradient, is_recorded);
}

/// The loss of one batch, and the gradients that belong to it, times `scale`.
template <class M, class Target, class Chosen>
double loss_and_gradients(M& model, typename M::input_view x, const Target& target,
                          const Chosen& loss, BatchShare share, double scale) {
  loss_gradient_t<M> gradient;
  const double value = forward_to_loss(model, x, target, loss, share, gradient, false);
  if (!std::isfinite(value)) {
    model.find_non_finite(x);
    throw numeric_error({"the loss is ", value,
                         ", though every layer's output is finite. The outputs are too large for "
                         "the loss: look at the target, and try a smaller learning rate"});
  }
  model.set_gradient_scale(scale);
  model.backward(views_of(scaled<typename M::dtype>(model.run(), std::move(gradient), scale)));
  return value;
}

}  // namespace detail

/// One batch of a step that has several. Adds its gradients, and returns its part of the step's
/// loss: the step's loss, a mean over the `samples` samples of all its batches, is the sum of what
/// the calls return. Batches may differ in size. `finish_step` ends the step, with the same
/// options:
///
///     for (const auto& [x, labels] : parts) loss += accumulate_step(model, x, labels, f, 256);
///     finish_step(model, optimizer);
///
/// A collective; returns the same number on every rank.
/// sends    the forward, loss and backward of `plan_step(model, x.global(), loss)`
/// throws   argument_error for more than `samples` samples, and for another number of samples or
///          loss scale than that of the step's batches before; numeric_error if the loss is no
///          finite number, with the layer where that began; what layers and loss throw. Then the
///          whole step is forgotten, and parameters and optimizer are as before it
template <class M, class Target, class Chosen>
double accumulate_step(M& model, typename M::input_view x, const Target& target, const Chosen& loss,
                       std::size_t samples, const StepOptions& options = {}) {
  static_assert(detail::must_train<M, Chosen>());
  return detail::or_discard(model, [&] {
    const std::size_t here = detail::samples_of(x);
    const std::size_t before = model.samples_of_step();
    if (before > 0 && model.announced_samples() != samples) {
      throw argument_error({"this batch is said to belong to a step of ", samples,
                            " samples, the batches before it to one of ", model.announced_samples(),
                            ": give all calls of a step the same number"});
    }
    if (before + here > samples) {
      throw argument_error({"this batch has ", here, " samples after ", before,
                            " in this step, but all its batches together were said to have ",
                            samples});
    }
    if (model.has_gradients()) detail::check_scale(model, options, "this batch has");
    model.announce_samples(samples);
    return detail::loss_and_gradients(model, x, target, loss, {here, samples}, options.scale());
  });
}

/// How a step ended.
struct StepEnd {
  bool skipped = false;          ///< because gradients overflowed under a loss scale
  std::optional<double> norm{};  ///< of the gradients before they were clipped, if they were to be
};

/// Ends a step: makes the gradients whole, and changes the parameters. A collective. With a scaler,
/// a step whose gradients overflowed is skipped on all ranks: parameters, optimizer and the number
/// of the step stay as they were, and the scale is smaller from then on.
/// sends    `plan().settle`, and the finish of `plan_step` with these options; a step that is
///          skipped leaves out the norm
/// throws   argument_error without a batch since the last step, for fewer samples than were
///          announced, for another model's optimizer, and for another loss scale than the batches
///          had; numeric_error for a norm to clip that is no finite number, or if the scale can
///          not be any smaller
template <class M, UpdateRule Rule>
StepEnd finish_step(M& model, Optimizer<Rule, M>& optimizer, const StepOptions& options = {}) {
  if (!model.has_gradients() || &optimizer.model() != &model) {
    throw argument_error(
        "finish_step needs the gradients of at least one batch of this step, and the optimizer "
        "that was made for this model");
  }
  detail::check_scale(model, options, "finish_step was given");
  if (model.announced_samples() != 0 && model.announced_samples() != model.samples_of_step()) {
    throw argument_error({"this step was said to have ", model.announced_samples(),
                          " samples, but its batches had ", model.samples_of_step(),
                          ": its loss would be no mean. Add the batches that are missing, or "
                          "discard_step()"});
  }
  const Observation here(model.observer(),
                         [] { return phase([] { return std::string("finish"); }); });
  StepEnd end;
  detail::or_discard(model, [&] {
    model.settle_owing();
    if (options.scaler != nullptr) end.skipped = detail::take_out_scale(model);
    if (options.clip_norm && !end.skipped) {
      end.norm = clip_gradients(model, *options.clip_norm, options.norm);
    }
    if (options.scaler != nullptr) options.scaler->update(end.skipped);
  });
  if (end.skipped) {
    model.discard_step();
  } else {
    optimizer.end_step();
  }
  return end;
}

/// One step on one batch; returns its loss, the same number on every rank. A collective.
/// sends    `plan_step(model, x.global(), loss, options)`
/// throws   as `accumulate_step` and `finish_step`; parameters and optimizer are then as before the
///          step on every rank that throws. An error that only one rank meets (memory, its backend)
///          reaches the others in their next call, and ends the job
template <class M, class Target, class Chosen, class Rule>
double train_step(M& model, typename M::input_view x, const Target& target, const Chosen& loss,
                  Optimizer<Rule, M>& optimizer, const StepOptions& options = {}) {
  static_assert(detail::must_train<M, Chosen>());
  const double value = accumulate_step(model, x, target, loss, detail::samples_of(x), options);
  finish_step(model, optimizer, options);
  return value;
}

/// What one training step of `model` with `loss` sends for inputs of shape `in`.
template <class M, class Chosen>
Plan plan_step(const M& model, const typename M::input_shapes& in, const Chosen& loss,
               const StepOptions& options = {}) {
  Plan plan = model.plan(in);
  plan.loss = loss_plan<typename M::output_layout>(loss, model.layers().output_shape(in),
                                                   dtype_v<typename M::dtype>);
  if (options.scaler != nullptr) plan.finish.add(all_reduce(1, Dtype::uint8));
  if (options.clip_norm) plan.finish.add(all_reduce(1, Dtype::float64));
  return plan;
}

}  // namespace shardwise
