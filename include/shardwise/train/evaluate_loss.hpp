#pragma once
// The loss of a model for data that it does not learn from.

#include <cstddef>
#include <span>

#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/train/loss.hpp"
#include "shardwise/train/losses.hpp"
#include "shardwise/train/running_mean.hpp"

namespace shardwise {

/// The loss of one batch in evaluation, the same number on every rank. Nothing is learnt: no
/// gradient of a parameter, no dropout, running statistics as they are. It may be called between
/// the batches of a Step. `segments` are the sequences of the batch, see Model::forward. A
/// collective.
/// sends    the collectives of Model::evaluate, and `loss_plan`
/// throws   as Model::evaluate, and as the loss
template <class M, class Target, class Chosen>
double evaluate_loss(M& model, typename M::input_view x, const Target& target, const Chosen& loss,
                     std::span<const Segment> segments = {}) {
  static_assert(detail::must_be_loss<Chosen, tensors_of<typename M::output_layout>>());
  const std::size_t samples = detail::samples_of(x);
  const auto prediction = model.evaluate(x, segments);
  detail::loss_gradient_t<M> gradient;  // every loss writes it
  return detail::loss_of(model.run(), prediction, target, loss, {samples, samples}, gradient,
                         false);
}

/// The mean of that over all samples of `batches`, a range of pairs of an input and a target:
///
///     evaluate_loss(model, EpochBatches(sampler, x, labels), CrossEntropy{})
///
/// A batch counts with the number of its samples; rows that a loss ignores do not change that. 0
/// for no batches. A collective: every rank gives as many batches.
/// sends, throws    as for each batch
template <class M, class Batches, class Chosen>
double evaluate_loss(M& model, Batches&& batches, const Chosen& loss) {
  RunningMean mean;
  for (const auto& [x, target] : batches) {
    const double of_batch = evaluate_loss(model, x, target, loss);
    mean.add(of_batch, detail::samples_of(x));
  }
  return mean.value();
}

}  // namespace shardwise
