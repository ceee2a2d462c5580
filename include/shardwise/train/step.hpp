#pragma once
// One training step: forward, loss, backward, and new parameters.

#include <cmath>
#include <cstddef>
#include <string>

#include "shardwise/core/error.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/train/loss.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

namespace detail {

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

/// The loss of one batch, and the gradients that belong to it.
template <class M, class Target, Loss Chosen>
double loss_and_gradients(M& model, typename M::input_view x, const Target& target,
                          const Chosen& loss, BatchShare share) {
  using T = typename M::dtype;
  using L = typename M::output_layout;
  using Frame = LossFrame<typename M::context, typename Chosen::template exchanges<L>>;
  const auto prediction = model.forward(x);
  auto& run = model.run();
  Value<T, dual_t<L>> gradient(run.pool, prediction.global(), run.place());
  Frame frame(run, loss.template exchange_shapes<L>(prediction.global()), share);
  const double value = loss(frame, prediction, target, gradient.writable());
  if (!std::isfinite(value)) {
    model.find_non_finite(x);
    throw numeric_error("the loss is " + std::to_string(value) +
                        ", though every layer's output is finite. The outputs are too large for "
                        "the loss: look at the target, and try a smaller learning rate");
  }
  model.backward(gradient.view());
  return value;
}

template <class View>
std::size_t samples_of(const View& x) {
  return x.global().rank() > 0 ? x.global()[0].extent() : 1;
}

}  // namespace detail

/// One batch of a step that has several. Adds its gradients, and returns its part of the step's
/// loss: the step's loss, a mean over the `samples` samples of all its batches, is the sum of what
/// the calls return. Batches may differ in size. `finish_step` ends the step:
///
///     for (const auto& [x, labels] : parts) loss += accumulate_step(model, x, labels, f, 256);
///     finish_step(model, optimizer);
///
/// A collective; returns the same number on every rank.
/// sends    the forward, loss and backward of `plan_step(model, x.global(), loss)`
/// throws   argument_error for a batch of more than `samples` samples or none; numeric_error if the
///          loss is no finite number, with the layer where that began; what layers and loss throw.
///          Then the whole step is forgotten, and parameters and optimizer are as before it
template <class M, class Target, Loss Chosen>
double accumulate_step(M& model, typename M::input_view x, const Target& target, const Chosen& loss,
                       std::size_t samples) {
  return detail::or_discard(model, [&] {
    const std::size_t here = detail::samples_of(x);
    const std::size_t before = model.samples_of_step();
    if (before + here > samples) {
      throw argument_error("this batch has " + std::to_string(here) + " samples after " +
                           std::to_string(before) +
                           " in this step, but all its batches together were said to have " +
                           std::to_string(samples));
    }
    return detail::loss_and_gradients(model, x, target, loss, {here, samples});
  });
}

/// Ends a step: makes the gradients whole, and changes the parameters. A collective.
/// sends    `plan().settle`
/// throws   argument_error without a batch since the last step, or for another model's optimizer
template <class M, UpdateRule Rule>
void finish_step(M& model, Optimizer<Rule, M>& optimizer) {
  if (!model.has_gradients() || &optimizer.model() != &model) {
    throw argument_error(
        "finish_step needs the gradients of at least one batch of this step, and the optimizer "
        "that was made for this model");
  }
  detail::or_discard(model, [&] { model.settle_gradients(); });
  optimizer.step();
  model.next_step();
}

/// One step on one batch; returns its loss, the same number on every rank. A collective.
/// sends    `plan_step(model, x.global(), loss)`
/// throws   as `accumulate_step`; parameters and optimizer are then as before the step on every
///          rank that throws. An error that only one rank meets (memory, its backend) reaches the
///          others in their next call, and ends the job
template <class M, class Target, Loss Chosen, UpdateRule Rule>
double train_step(M& model, typename M::input_view x, const Target& target, const Chosen& loss,
                  Optimizer<Rule, M>& optimizer) {
  const double value = accumulate_step(model, x, target, loss, detail::samples_of(x));
  finish_step(model, optimizer);
  return value;
}

}  // namespace shardwise
