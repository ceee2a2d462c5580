#pragma once
// The loss of a model for data that it does not learn from.

#include <cstddef>
#include <span>

#include "shardwise/core/error.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/train/loss.hpp"
#include "shardwise/train/losses.hpp"

namespace shardwise {

namespace detail {

/// A batch's part of the loss of all batches, from the output of the model in evaluation.
template <class M, class Target, class Chosen>
double evaluated_part_of_output(M& model, typename M::output_view prediction, const Target& target,
                                const Chosen& loss, BatchInStep in_step) {
  auto& run = model.run();
  const auto here = in_phase<Phase::loss>(run);
  loss_gradient_t<M> gradient;  // every loss writes it
  return loss_of(run, prediction, target, loss, in_step, gradient);
}

/// A batch's part of the loss of all batches, in evaluation.
template <class M, class Target, class Chosen>
double evaluated_part(M& model, typename M::input_view x, const Target& target, const Chosen& loss,
                      BatchInStep in_step, std::span<const Segment> segments = {}) {
  static_assert(must_be_loss<Chosen, tensors_of<typename M::output_layout>>());
  require_fitting_target(model, x, target, loss);
  return evaluated_part_of_output(model, model.evaluate(x, {.segments = segments}), target, loss,
                                  in_step);
}

}  // namespace detail

/// The loss of one batch in evaluation, the same number on every rank. Nothing is learnt: no
/// gradient of a parameter, no dropout, running statistics as they are. It may be called between
/// the batches of a Step. `segments` are the sequences of the batch, see Model::forward. A
/// collective.
/// sends    the collectives of Model::evaluate, and `plan_loss`
/// throws   as Model::evaluate, and as the loss
template <class M, class Target, class Chosen>
double evaluate_loss(M& model, typename M::input_view x, const Target& target, const Chosen& loss,
                     std::span<const Segment> segments = {}) {
  const std::size_t samples = detail::samples_of(x);
  return detail::evaluated_part(model, x, target, loss, {samples, samples}, segments);
}

/// The loss of all batches together, as if they were one. `batches` is a range of pairs of an input
/// and a target, and its `samples()` is the number of samples of all of them:
///
///     evaluate_loss(model, EpochBatches(sampler, x, labels), CrossEntropy{})
///
/// A loss that is a sum is added up. One that leaves out or weighs labels needs its `counted`, of
/// all batches. 0 for no batches. A collective: every rank gives as many batches.
/// sends    as for each batch
/// throws   as for each batch, and argument_error if the batches have another number of samples
template <class M, class Batches, class Chosen>
double evaluate_loss(M& model, Batches&& batches, const Chosen& loss) {
  const std::size_t samples = batches.samples();
  std::size_t added = 0;
  double sum = 0;
  for (const auto& [x, target] : batches) {
    const std::size_t of_batch = detail::samples_of(x);
    sum += detail::evaluated_part(model, x, target, loss, {of_batch, samples});
    added += of_batch;
  }
  if (added == samples) return sum;
  throw argument_error({"evaluate_loss: the batches had ", added,
                        " samples, but their samples() said ", samples,
                        ": the loss would be no mean of all of them"});
}

}  // namespace shardwise
