// Loss scales: PyTorch's course of them, one verdict of all ranks, and steps that never were.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/messages.hpp"
#include "unit/train/rows.hpp"
#include "witness/values.hpp"

using namespace testing;

namespace {

struct Mlp
    : Sequential<ColumnParallelLinear<9, 13>, Gelu, Dropout<1, 4>, RowParallelLinear<13, 10>> {};

const Shape in{{Axis::batch, 7}, {Axis::feature, 9}};

using Numbers = std::vector<double>;

template <class Span>
Numbers numbers_of(const Span& span) {
  return {span.begin(), span.end()};
}

/// A model, its optimizer and a batch.
template <class C, class T = double>
struct Training {
  explicit Training(C& ranks)
      : model(ranks, Seed{3}),
        optimizer(model, AdamW{.learning_rate = 0.05}),
        x(tensor_of<T>(in, place_of(ranks), made(2, in.elements()))),
        labels(made_labels(Shape{in[0]}, place_of(ranks), 10)) {}

  double step(const StepOptions& options = {}) {
    return train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer, options);
  }

  /// The two halves of a step, with gradients that overflow on rank `bad` alone in between.
  StepEnd overflow(const StepOptions& options, int bad) {
    Step step(optimizer, 7, options);
    step.add(x.view(), labels.view(), CrossEntropy{});
    model.settle_gradients();
    model.visit_parameters([&](auto& parameter) {
      if (parameter.name == "3.weight" && model.ranks().rank() == bad)
        parameter.gradient[0] = std::numeric_limits<T>::infinity();
    });
    return step.finish();
  }

  Model<Mlp, Context<T, Reference, C>> model;
  Optimizer<AdamW, Model<Mlp, Context<T, Reference, C>>> optimizer;
  Tensor<T, Invariant> x;
  Tensor<std::int32_t, Invariant> labels;
};

}  // namespace

TEST_CASE("scales follow those of PyTorch") {
  LossScaler scaler({.initial = 8, .growth = 2, .backoff = 0.5, .interval = 3});
  const witness::Values theirs("training/mixed_precision");
  const auto scales = theirs["scales"];
  CHECK(scales.size() == 14);
  for (std::size_t step = 0; step < scales.size(); ++step) {
    INFO("step " << step);
    CHECK(scaler.scale() == scales[step]);
    scaler.update(step == 4 || step == 5 || step == 10);
  }
  CHECK(scaler.skipped() == 3);
}

TEST_CASE("a scale that is a power of two changes nothing but what would have been lost") {
  const auto compare = [](auto& ranks) {
    using C = std::remove_reference_t<decltype(ranks)>;
    Training<C> plain(ranks);
    Training<C> scaled(ranks);
    LossScaler scaler({.initial = 1024, .interval = 2});
    const StepOptions clip{.clip_norm = 0.5};
    const StepOptions both{.clip_norm = 0.5, .scaler = &scaler};
    for (int step = 0; step < 5; ++step) CHECK(plain.step(clip) == scaled.step(both));
    CHECK(numbers_of(plain.model.values()) == numbers_of(scaled.model.values()));
    CHECK(scaler.scale() == 4096);
  };
  SingleRank alone;
  compare(alone);
  run_ranks(3, [&](ThreadCommunicator& ranks) { compare(ranks); });
}

TEST_CASE("an overflow on one rank skips the step on all, as if it had never been") {
  for (int bad = 0; bad < 3; ++bad) {
    run_ranks(3, [&](ThreadCommunicator& ranks) {
      Training<ThreadCommunicator> training(ranks);
      Training<ThreadCommunicator> without(ranks);
      LossScaler scaler({.initial = 16});
      const StepOptions options{.clip_norm = 1.0, .scaler = &scaler};
      training.step(options);
      without.step({.clip_norm = 1.0});
      const Numbers before = numbers_of(training.model.values());
      const StepEnd end = training.overflow(options, bad);
      CHECK(end.skipped);
      CHECK(!end.norm);
      CHECK(scaler.scale() == 8);
      CHECK(scaler.skipped() == 1);
      CHECK(numbers_of(training.model.values()) == before);
      CHECK(training.model.step() == 2);
      CHECK(training.optimizer.steps() == 1);
      CHECK(training.step(options) == without.step({.clip_norm = 1.0}));
      CHECK(numbers_of(training.model.values()) == numbers_of(without.model.values()));
    });
  }
}

TEST_CASE("a fixed scale stays") {
  SingleRank alone;
  Training<SingleRank> training(alone);
  LossScaler scaler = LossScaler::fixed(8);
  for (int step = 0; step < 3; ++step) training.step({.scaler = &scaler});
  CHECK(training.overflow({.scaler = &scaler}, 0).skipped);
  CHECK(scaler.scale() == 8);
  CHECK(training.optimizer.steps() == 3);
}

TEST_CASE("a step in parts has its options in all of them") {
  SingleRank alone;
  Training<SingleRank> training(alone);
  Training<SingleRank> other(alone);
  LossScaler scaler({.initial = 64});
  const StepOptions options{.clip_norm = 0.5, .scaler = &scaler};
  Step step(training.optimizer, 7, options);
  const double loss = add_parts(step, training.x, training.labels, CrossEntropy{});
  step.finish();
  CHECK(std::abs(loss - other.step({.clip_norm = 0.5})) < 1e-12);
  CHECK(largest_difference(numbers_of(training.model.values()), numbers_of(other.model.values())) <
        1e-12);
}

TEST_CASE("a step with options sends what plan_step says") {
  run_ranks(3, [](ThreadCommunicator& inner) {
    CountingCommunicator ranks(inner);
    Training<decltype(ranks)> training(ranks);
    LossScaler scaler({.initial = 16});
    for (const bool scales : {false, true}) {
      for (const bool clips : {false, true}) {
        StepOptions options;
        if (scales) options.scaler = &scaler;
        if (clips) options.clip_norm = 1.0;
        const Plan plan = plan_step(training.model, in, CrossEntropy{}, options);
        CHECK(plan.finish.size() == std::size_t{scales} + std::size_t{clips});
        std::vector<CountedCall> planned;
        for (const auto* list :
             {&plan.forward, &plan.loss, &plan.backward, &plan.settle, &plan.finish}) {
          for (const auto& call : *list) {
            planned.push_back({call.operation, call.dtype, call.elements});
          }
        }
        ranks.clear();
        training.step(options);
        CHECK(std::vector<CountedCall>(ranks.log().begin(), ranks.log().end()) == planned);
      }
    }
  });
}

TEST_CASE("a step keeps the scale that it began with, and nobody else clips under it") {
  SingleRank alone;
  Training<SingleRank> training(alone), plain(alone);
  LossScaler scaler({.initial = 16});
  Step step(training.optimizer, 14, {.scaler = &scaler});
  const auto add = [&] {
    return step.add(training.x.view(), training.labels.view(), CrossEntropy{});
  };
  add();
  CHECK(contains(message_of([&] { clip_gradients(training.model, 1.0); }),
                 "clip_norm that is wanted, and its finish() gives the norm"));
  scaler.set_state({.scale = 32});
  add();
  step.finish();
  Step unscaled(plain.optimizer, 14);
  for (int i = 0; i < 2; ++i) unscaled.add(plain.x.view(), plain.labels.view(), CrossEntropy{});
  clip_gradients(plain.model, 1e9);
  unscaled.finish();
  CHECK(numbers_of(training.model.values()) == numbers_of(plain.model.values()));
}

TEST_CASE("options of a scaler that make no sense are refused by name") {
  const auto refusal = [](const DynamicLossScale& options) {
    return message_of([&] { LossScaler{options}; });
  };
  CHECK(contains(refusal({.initial = 0}), "initial is 0"));
  CHECK(contains(refusal({.initial = HUGE_VAL}), "initial"));
  CHECK(contains(refusal({.growth = 1}), "growth is 1; it must be above 1"));
  CHECK(contains(refusal({.growth = 0.5}), "growth"));
  CHECK(contains(refusal({.backoff = 1}), "backoff"));
  CHECK(contains(refusal({.backoff = std::nan("")}), "backoff"));
  CHECK(contains(refusal({.interval = 0}), "interval"));
  CHECK_THROWS_AS(LossScaler::fixed(-1), argument_error);
}

TEST_CASE("a run that overflows at every scale ends with a sentence") {
  LossScaler scaler({.initial = 0x1p-125, .backoff = 0.5});
  scaler.update(true);
  CHECK(contains(message_of([&] { scaler.update(true); }), "not the scale that makes them do so"));
  CHECK(scaler.scale() == 0x1p-126);
  LossScaler growing({.initial = 0x1p127, .interval = 1});
  growing.update(false);
  CHECK(growing.scale() == 0x1p127);
}
