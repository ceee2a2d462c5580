// What a trainer looks at besides the loss of a step.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "shardwise/data/row_batch.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/evaluate_loss.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/running_mean.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
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
  };
  const std::vector<std::size_t> expected{0, 0, 1, 2, 2, 2, 2, 2, 2, 2};
  for (const int size : {1, 4}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      Tensor<std::int32_t, Invariant> labels(Shape{{Axis::batch, 3}}, place_of(ranks));
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

}  // namespace

TEST_CASE("the loss of other data is the mean over all its samples, at every number of ranks") {
  // Row r is r, r, r: the answer is 6 r. The targets are 0, so the loss is the mean of 36 r².
  std::vector<double> rows;
  for (int r = 0; r < 7; ++r) rows.insert(rows.end(), 3, r);
  const std::vector<double> targets(7);
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
      DistributedSampler sampler(7, place_of(ranks), {.batch_size = 3});
      const double before = evaluate_loss(model, EpochBatches(sampler, x, y), MeanSquaredError{});
      // end: rows
      CHECK(std::abs(before - expected) < 1e-12);
      DistributedSampler all(7, place_of(ranks), {.batch_size = 7});
      const SampleBatch batch = all.next();
      const double in_one =
          evaluate_loss(model, x.gather(batch), y.gather(batch), MeanSquaredError{});
      CHECK(std::abs(in_one - expected) < 1e-12);
      CHECK(model.step() == 1);
      CHECK_THROWS_AS(model.backward(View<const double, Invariant>(y.gather(batch))),
                      argument_error);  // there is nothing to learn from
      // begin: epoch
      for (const auto& [in, target] : EpochBatches(sampler, x, y)) {
        train_step(model, in, target, MeanSquaredError{}, optimizer);
      }
      // end: epoch
      CHECK(model.step() == 4);
      CHECK(evaluate_loss(model, EpochBatches(sampler, x, y), MeanSquaredError{}) < before);
    });
  }
}
