// What a trainer looks at besides the loss of a step.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/data/row_batch.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/evaluate_loss.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/running_mean.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/messages.hpp"
#include "unit/train/rows.hpp"
#include "witness/values.hpp"

using namespace testing;

namespace {

constexpr std::size_t classes = 10;

/// Counts rows of logits laid out as L, for k = 1, 2, ...
template <class L, class C>
std::vector<std::size_t> counts(C& ranks, const std::vector<double>& logits,
                                const Tensor<std::int32_t, Invariant>& labels) {
  Model<To<L>, Context<double, Reference, C>, Ends<Invariant, L>> model(ranks, Seed{1});
  const auto x = tensor_of<double>(Shape{labels.global()[0], {Axis::feature, classes}},
                                   place_of(ranks), logits);
  std::vector<std::size_t> found;
  for (std::size_t k = 1; k <= classes; ++k) {
    found.push_back(count_top_k(model, x.view(), labels.view(), k));
  }
  CHECK(found[0] == count_correct(model, x.view(), labels.view()));
  CHECK_THROWS_AS(count_top_k(model, x.view(), labels.view(), 0), argument_error);
  CHECK_THROWS_AS(count_top_k(model, x.view(), labels.view(), classes + 1), argument_error);
  return found;
}

}  // namespace

TEST_CASE("top-k counts are PyTorch's in every layout") {
  const witness::Values theirs("training/metrics");
  const auto top_k = theirs["top_k"];
  const std::vector<std::size_t> expected(top_k.begin(), top_k.end());
  for (const int size : {1, 3, 4}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      const auto logits = made(72, 40 * classes);
      const auto labels = made_labels(Shape{{Axis::batch, 40}}, place_of(ranks), classes);
      CHECK(counts<Invariant>(ranks, logits, labels) == expected);
      CHECK(counts<Batch>(ranks, logits, labels) == expected);
      CHECK(counts<Feature>(ranks, logits, labels) == expected);
    });
  }
}

TEST_CASE("of equal logits the first count, and one that is no number counts before all") {
  const double nan = std::nan("");
  const std::vector<double> logits{
      1, 1,   1,   0, 0, 0, 0, 0, 0, 0,    // label 2: two equal ones before it
      1, nan, 5,   7, 0, 0, 0, 0, 0, nan,  // label 2: two that are no numbers, and a larger one
      0, 0,   nan, 0, 0, 0, 0, 0, 0, 0,    // label 2 is none itself
      0, 0,   1,   1, 0, 0, 1, 0, 1, 0,    // label 2: three equal ones behind it, on other ranks
  };
  const std::vector<std::size_t> expected{1, 1, 2, 3, 3, 3, 3, 3, 3, 3};
  for (const int size : {1, 4}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      Tensor<std::int32_t, Invariant> labels(Shape{{Axis::batch, 4}}, place_of(ranks));
      for (std::int32_t& label : labels.view().span()) label = 2;
      CHECK(counts<Invariant>(ranks, logits, labels) == expected);
      CHECK(counts<Batch>(ranks, logits, labels) == expected);
      CHECK(counts<Feature>(ranks, logits, labels) == expected);
    });
  }
}

TEST_CASE("a running mean weighs batches by their samples") {
  RunningMean mean;
  CHECK(mean.value() == 0);
  mean.add(2.0, 3);
  mean.add(5.0, 1);
  CHECK(mean.value() == 2.75);
  CHECK(mean.samples() == 4);
}

namespace {

/// y = 2 x summed over the three features, in evaluation.
struct Doubled : Sequential<Dropout<1, 2>, ColumnParallelLinear<3, 1, false>> {};

struct TwoClasses : Sequential<ColumnParallelLinear<3, 2, false>> {};

/// Row r is r, r, r.
std::vector<double> seven_rows() {
  std::vector<double> rows;
  for (int r = 0; r < 7; ++r) rows.insert(rows.end(), 3, r);
  return rows;
}

/// Batches that say that they have one sample more than they have.
struct OneMore : EpochBatches<RowBatch<double>, RowBatch<double>> {
  using EpochBatches::EpochBatches;
  std::size_t samples() const { return EpochBatches::samples() + 1; }
};

}  // namespace

TEST_CASE("the loss of other data is the mean over all its samples, at every number of ranks") {
  // The answers are 6 r. The targets are 0, so the loss is the mean of 36 r².
  const std::vector<double> kept_rows = seven_rows(), rows(15, 1.0);
  const std::vector<double> kept_targets(7), targets(5);
  const double expected = 36.0 * (1 + 4 + 9 + 16 + 25 + 36) / 7;
  for (const int size : {1, 2, 3, 8}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      Model<Doubled, Context<double, Reference, ThreadCommunicator>> model(ranks, Seed{1});
      for (double& value : model.values()) value = 2;
      model.values_changed();
      Optimizer optimizer(model, Sgd{.learning_rate = 1e-3});
      // begin: rows
      RowBatch<double> x(rows, {{Axis::feature, 3}}, place_of(ranks));  // rows: a std::vector
      RowBatch<double> y(targets, {{Axis::feature, 1}}, place_of(ranks));
      DistributedSampler sampler(x.count(), place_of(ranks), {.batch_size = 3});
      // end: rows
      // begin: kept
      RowBatch<double> kept_x(kept_rows, {{Axis::feature, 3}}, place_of(ranks));
      RowBatch<double> kept_y(kept_targets, {{Axis::feature, 1}}, place_of(ranks));
      DistributedSampler in_order(kept_x.count(), place_of(ranks),
                                  {.batch_size = 3, .shuffles = false});
      EpochBatches kept(in_order, kept_x, kept_y);
      const double before = evaluate_loss(model, kept, MeanSquaredError{});
      // end: kept
      CHECK(std::abs(before - expected) < 1e-12);
      const double sum =
          evaluate_loss(model, kept, MeanSquaredError{.reduction = LossReduction::sum});
      CHECK(std::abs(sum - 7 * expected) < 1e-11);
      CHECK_THROWS_AS(evaluate_loss(model, OneMore(in_order, kept_x, kept_y), MeanSquaredError{}),
                      argument_error);
      DistributedSampler all(7, place_of(ranks), {.batch_size = 7});
      const SampleBatch batch = all.next();
      const double in_one =
          evaluate_loss(model, kept_x.gather(batch), kept_y.gather(batch), MeanSquaredError{});
      CHECK(std::abs(in_one - expected) < 1e-12);
      CHECK(model.step() == 1);
      CHECK_THROWS_AS(model.backward(View<const double, Invariant>(kept_y.gather(batch))),
                      argument_error);  // there is nothing to learn from
      // begin: epoch
      for (const auto& [in, target] : EpochBatches(sampler, x, y)) {
        train_step(model, in, target, MeanSquaredError{}, optimizer);
      }
      // end: epoch
      CHECK(model.step() == 3);
      CHECK(evaluate_loss(model, kept, MeanSquaredError{}) < before);
    });
  }
}

TEST_CASE("the loss of batches with ignored labels is a mean over those that count") {
  // The logits are 0 and r, so a row's loss is ln(1 + eʳ) for label 0, and ln(1 + e⁻ʳ) for label 1.
  const std::vector<double> rows = seven_rows(), weight{0, 0, 0, 1 / 3.0, 1 / 3.0, 1 / 3.0};
  const std::vector<std::int32_t> labels{0, 1, 0, -100, -100, -100, 1};  // none counts in batch 2
  const auto loss_of_row = [](double r) { return std::log1p(std::exp(r)); };
  const double expected = (loss_of_row(0) + loss_of_row(-1) + loss_of_row(2) + loss_of_row(-6)) / 4;
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](ThreadCommunicator& inner) {
      CountingCommunicator ranks(inner);
      using Counted = CountingCommunicator<ThreadCommunicator>;
      Model<TwoClasses, Context<double, Reference, Counted>> model(ranks, Seed{1});
      const Shape shape{{Axis::output, 2}, {Axis::input, 3}};
      model.set("0.weight", View<const double, Invariant>(weight, shape, place_of(ranks)));
      RowBatch<double> x(rows, {{Axis::feature, 3}}, place_of(ranks));
      RowBatch<std::int32_t> y(labels, {}, place_of(ranks));
      DistributedSampler sampler(7, place_of(ranks), {.batch_size = 3, .shuffles = false});
      const double loss =
          evaluate_loss(model, EpochBatches(sampler, x, y), MaskedCrossEntropy{.counted = 4});
      CHECK(std::abs(loss - expected) < 1e-12);
      const auto text = message_of<argument_error>(
          [&] { evaluate_loss(model, EpochBatches(sampler, x, y), MaskedCrossEntropy{}); });
      check_mentions(text, {"set `counted`"});

      sampler.set_state({});
      const SampleBatch batch = sampler.next();
      const auto in = x.gather(batch);
      const auto label = y.gather(sampler.next());
      const std::size_t sent = ranks.log().size();
      const View<const std::int32_t, Invariant> two(label.span().first(2), {{Axis::batch, 2}},
                                                    place_of(ranks));
      CHECK_THROWS_AS(evaluate_loss(model, in, two, CrossEntropy{}), shape_error);
      CHECK(ranks.log().size() == sent);  // before the model sends anything
    });
  }
}
