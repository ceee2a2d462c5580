// Narrow compute over wide parameters: PyTorch's steps, the same at every number of ranks, and what
// the wide parameters are for.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "witness/formula.hpp"
#include "witness/values.hpp"

using namespace shardwise;

namespace {

using testing::largest_difference;

using Batch = Sharded<Axis::batch>;
using Numbers = std::vector<double>;

struct Whole : Sequential<Linear<split::none, 9, 13>, Relu, Linear<split::none, 13, 5>> {};
struct Parallel : Sequential<ColumnParallelLinear<9, 13>, Relu, RowParallelLinear<13, 5>> {};

/// A rank's part of made-up tensor `number`, times `factor`.
template <class T, Layout L>
Tensor<T, L> made(std::int64_t number, double factor, const Shape& shape, Place place) {
  return testing::filled<T, L>(shape, place, [&](std::size_t i) {
    return detail::rounded<T>(factor * witness::made(number, static_cast<std::int64_t>(i)));
  });
}

/// A first layer whose gradient owes a sum, and one that is split.
struct Mixed : Sequential<Linear<split::none, 9, 13>, Relu, ColumnParallelLinear<13, 5>> {};

/// A model that trains on one batch of made-up numbers, again and again.
template <class C>
struct Trained {
  using M = Model<Mixed, Context<Precision<bf16, float>, Reference, C>,
                  Ends<Batch, Sharded<Axis::feature>>>;

  Trained(C& ranks, const Sgd& rule)
      : model(ranks, Seed{3}),
        optimizer(model, rule),
        x(made<bf16, Batch>(50, 1, {{Axis::batch, 6}, {Axis::feature, 9}}, place_of(ranks))),
        target(made<bf16, Invariant>(51, 1, {{Axis::batch, 6}, {Axis::feature, 5}},
                                     place_of(ranks))) {}

  void add(Step<M, Sgd>& step) { step.add(x.view(), target.view(), MeanSquaredError{}); }

  void step(std::size_t batches) {
    Step whole(optimizer, 6 * batches);
    for (std::size_t i = 0; i < batches; ++i) add(whole);
    whole.finish();
  }

  /// The same without what finish() does in one pass; change() comes after the optimizer.
  template <class Change>
  void step_by_hand(std::size_t batches, Change&& change) {
    Step whole(optimizer, 6 * batches);
    for (std::size_t i = 0; i < batches; ++i) add(whole);
    model.settle_gradients();
    optimizer.step();
    change();
    model.next_step();
  }

  Numbers values() { return {model.values().begin(), model.values().end()}; }
  Numbers output() {
    const auto y = model.evaluate(x.view());
    Numbers numbers;
    for (const bf16 number : y.span()) numbers.push_back(static_cast<float>(number));
    return numbers;
  }

  M model;
  Optimizer<Sgd, M> optimizer;
  Tensor<bf16, Batch> x;
  Tensor<bf16, Invariant> target;
};

struct Run_ {
  Numbers losses;
  std::vector<Numbers> parameters;  ///< whole, in model order
};

const std::vector<std::string> names{"0.weight", "0.bias", "2.weight", "2.bias"};

/// The four steps of the witness, each of them in `parts` equal batches.
template <class L, class P, class E = Ends<Invariant, Invariant>, class C>
Run_ train(C& ranks, double scale = 1, std::size_t parts = 1, std::optional<double> clip = {}) {
  using M = Model<L, Context<P, Reference, C>, E>;
  using T = typename M::dtype;
  M model(ranks, Seed{1});
  const Place place = place_of(ranks);
  std::int64_t number = 51;
  for (const std::string& name : names) {
    const Shape shape = model.gather(name).global();
    model.set(name,
              made<typename M::parameter_dtype, Invariant>(number++, 0.5, shape, place).view());
  }
  const Shape in{{Axis::batch, 6}, {Axis::feature, 9}};
  const auto x = made<T, typename E::offered>(50, 1, in, place);
  Tensor<std::int32_t, Invariant> labels(Shape{in[0]}, place);
  for (std::size_t i = 0; i < 6; ++i) {
    labels[i] = witness::made_label(static_cast<std::int64_t>(i), 5);
  }
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1, .momentum = 0.9});
  LossScaler scaler = LossScaler::fixed(scale);
  const StepOptions options{.clip_norm = clip, .scaler = &scaler};
  const std::size_t rows = 6 / parts;
  const Shape part{{Axis::batch, rows}, in[1]};
  Run_ run;
  for (int i = 0; i < 4; ++i) {
    Step step(optimizer, 6, options);
    double loss = 0;
    for (std::size_t first = 0; first < 6; first += rows) {
      const View<const T, typename E::offered> x_part(x.data() + 9 * first, part, place);
      const View<const std::int32_t, Invariant> labels_part(labels.data() + first, Shape{part[0]},
                                                            place);
      loss += step.add(x_part, labels_part, CrossEntropy{});
    }
    run.losses.push_back(loss);
    step.finish();
  }
  CHECK(scaler.skipped() == 0);
  for (const std::string& name : names) {
    const auto whole = model.gather(name);
    run.parameters.emplace_back(whole.data(), whole.data() + whole.size());
  }
  return run;
}

/// A layer on one rank and a target that its output has to come down to, in tiny steps.
template <class P>
struct Slow {
  Slow() : model(alone, Seed{1}), optimizer(model, Sgd{.learning_rate = 0x1p-12}) {
    for (auto& value : model.values()) value = detail::rounded<typename M::parameter_dtype>(1.0);
    model.values_changed();
  }
  double step() {
    return train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer);
  }

  using M = Model<Linear<split::none, 4, 1, false>, Context<P, Reference, SingleRank>>;
  using T = typename M::dtype;
  SingleRank alone;
  M model;
  Optimizer<Sgd, M> optimizer;
  Tensor<T, Invariant> x = ones();
  Tensor<T, Invariant> target{Shape{{Axis::batch, 2}, {Axis::feature, 1}}};

 private:
  static Tensor<T, Invariant> ones() {
    Tensor<T, Invariant> x(Shape{{Axis::batch, 2}, {Axis::feature, 4}});
    for (T& element : x.view().span()) element = T(1.0F);
    return x;
  }
};

}  // namespace

TEST_CASE("steps in bf16 and fp16 over parameters in float are PyTorch's") {
  const auto check = [](const Run_& run, const std::string& dtype) {
    const witness::Values theirs("training/mixed_precision/" + dtype);
    // Sums in float instead of double round to the same narrow numbers here; the rest is float.
    CHECK(largest_difference(run.losses, theirs["losses"]) < 1e-6);
    for (std::size_t i = 0; i < names.size(); ++i) {
      CHECK(largest_difference(run.parameters[i], theirs[names[i]]) < 1e-7);
    }
  };
  SingleRank alone;
  check(train<Whole, Precision<bf16, float>>(alone), "bf16");
  check(train<Whole, Precision<fp16, float>>(alone, 1024), "fp16");
}

// Where a sum is split over ranks, each rank's summand is rounded to the narrow dtype, to 2^-9 of
// itself in bf16, and other sums round to other neighbours. Gradients of some 0.1 so differ by some
// 2e-4 each, of which four steps at a rate of 0.1 with momentum 0.9 take 0.1 (4 + 3 + 2 + 1) at
// most: 2e-4. The bounds leave room for gradients that are larger and for what adds up between
// layers; ten times as much is seen where a sum is forgotten.
TEST_CASE("narrow compute gives the same steps at every number of ranks, but for rounding") {
  using P = Precision<bf16, float>;
  SingleRank alone;
  const Run_ expected = train<Whole, P>(alone);
  CHECK(expected.losses[3] < 0.9 * expected.losses[0]);
  for (const int size : {1, 2, 3, 4, 8}) {
    CAPTURE(size);
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      for (const Run_& run :
           {train<Parallel, P>(ranks), train<Whole, P, Ends<Batch, Batch>>(ranks)}) {
        CHECK(largest_difference(run.losses, expected.losses) < 0.004);
        for (std::size_t i = 0; i < names.size(); ++i) {
          CHECK(largest_difference(run.parameters[i], expected.parameters[i]) < 0.002);
        }
      }
    });
  }
}

// In parts, a gradient is rounded to 2^-9 of itself in each part instead of once; see above.
TEST_CASE("a step in parts is the step in one, but for rounding, with clipping and a scale too") {
  using P = Precision<bf16, float>;
  const auto check = [](auto& ranks) {
    const Run_ whole = train<Parallel, P>(ranks, 256, 1, 0.5);
    const Run_ parts = train<Parallel, P>(ranks, 256, 3, 0.5);
    CHECK(largest_difference(parts.losses, whole.losses) < 0.004);
    for (std::size_t i = 0; i < names.size(); ++i) {
      CHECK(largest_difference(parts.parameters[i], whole.parameters[i]) < 0.002);
    }
    const Run_ unclipped = train<Parallel, P>(ranks, 256);
    CHECK(largest_difference(unclipped.losses, whole.losses) > 0.05);  // the norm was above 0.5
  };
  SingleRank alone;
  check(alone);
  run_ranks(3, [&](ThreadCommunicator& ranks) { check(ranks); });
}

TEST_CASE("updates below the resolution of bf16 move parameters in float, and none in bf16") {
  Slow<bf16> narrow;
  Slow<Precision<bf16, float>> wide;
  const double narrow_loss = narrow.step();
  const double wide_loss = wide.step();
  CHECK(narrow_loss == wide_loss);
  for (int step = 0; step < 60; ++step) {
    narrow.step();
    wide.step();
  }
  for (const bf16 value : narrow.model.values().first(4)) CHECK(static_cast<float>(value) == 1.0F);
  CHECK(narrow.step() == narrow_loss);
  CHECK(wide.step() < 0.9 * wide_loss);
}

TEST_CASE("parameters are set and gathered in their own dtype, and layers read them rounded") {
  using M = Model<ColumnParallelLinear<1, 3>,
                  Context<Precision<bf16, float>, Reference, ThreadCommunicator>,
                  Ends<Invariant, Invariant>>;
  run_ranks(2, [](ThreadCommunicator& ranks) {
    const Place place = place_of(ranks);
    M model(ranks, Seed{1});
    Model<ColumnParallelLinear<1, 3>, Context<float, Reference, ThreadCommunicator>> wide(ranks,
                                                                                          Seed{1});
    for (const char* name : {"weight", "bias"}) {  // both begin with the same numbers
      const auto begins = model.gather(name);
      const auto same = wide.gather(name);
      for (std::size_t i = 0; i < 3; ++i) CHECK(begins[i] == same[i]);
    }
    Tensor<float, Invariant> weight(Shape{{Axis::output, 3}, {Axis::input, 1}}, place);
    for (std::size_t i = 0; i < 3; ++i) weight[i] = 1 + static_cast<float>(i + 1) * 0x1p-9F;
    model.set("weight", weight.view());
    model.set("bias", Tensor<float, Invariant>(Shape{{Axis::output, 3}}, place).view());
    const auto gathered = model.gather("weight");
    for (std::size_t i = 0; i < 3; ++i) CHECK(gathered[i] == weight[i]);
    Tensor<bf16, Invariant> x(Shape{{Axis::batch, 1}, {Axis::feature, 1}}, place);
    x[0] = bf16(1.0F);
    const auto y = model.evaluate(x.view());
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(static_cast<float>(y[i]) == static_cast<float>(bf16(weight[i])));
    }
    for (float& value : model.values()) value *= 2;
    model.values_changed();
    CHECK(static_cast<float>(model.evaluate(x.view())[0]) ==
          static_cast<float>(bf16(2 * weight[0])));
    model.set("weight", weight.view());
    CHECK(static_cast<float>(model.evaluate(x.view())[0]) == static_cast<float>(bf16(weight[0])));
  });
}

// A batch of 2 of the 2^18 samples of a step: each gradient of an output is 2^-26, and the smallest
// number of fp16 is 2^-24.
TEST_CASE("gradients that fp16 cannot hold are lost without a loss scale, and found with one") {
  using P = Precision<fp16, float>;
  const Dim others{Axis::batch, (1 << 18) - 2};  // whose gradients are 0
  const Tensor<fp16, Invariant> zeros(Shape{others, {Axis::feature, 4}});
  const Tensor<fp16, Invariant> outputs(Shape{others, {Axis::feature, 1}});
  const auto train = [&](Slow<P>& slow, const StepOptions& options) {
    for (fp16& target : slow.target.view().span()) target = fp16(4 - 0x1p-9F);
    Step step(slow.optimizer, 1 << 18, options);
    step.add(slow.x.view(), slow.target.view(), MeanSquaredError{});
    step.add(zeros.view(), outputs.view(), MeanSquaredError{});
    return step.finish();
  };
  Slow<P> plain;
  plain.optimizer.set_learning_rate(0x1p10);
  train(plain, {});
  for (const float value : plain.model.values().first(4)) CHECK(value == 1.0F);

  Slow<P> scaled;
  scaled.optimizer.set_learning_rate(0x1p10);
  LossScaler scaler = LossScaler::fixed(65536);
  CHECK(!train(scaled, {.scaler = &scaler}).skipped);
  for (const float value : scaled.model.values().first(4)) CHECK(value == 1 - 0x1p-15F);

  // A weight's gradient, 2^-25 times the scale, is finite from a scale of 2^40 down.
  Slow<P> rescaled;
  rescaled.optimizer.set_learning_rate(0x1p10);
  LossScaler falling({.initial = 0x1p60});
  while (train(rescaled, {.scaler = &falling}).skipped) CHECK(rescaled.optimizer.steps() == 0);
  CHECK(falling.skipped() == 20);
  CHECK(falling.scale() == 0x1p40);
  CHECK(rescaled.model.values()[0] == 1 - 0x1p-15F);
}

// 300 times 1: in bf16 the sum would stay at 256, to which 1 adds nothing.
TEST_CASE("gradients of many batches add up in the dtype of gradients") {
  const auto check = [](auto& ranks, auto architecture, auto ends) {
    using C = std::remove_reference_t<decltype(ranks)>;
    Model<decltype(architecture), Context<Precision<bf16, float>, Reference, C>, decltype(ends)>
        model(ranks, Seed{1});
    Tensor<bf16, Invariant> x(Shape{{Axis::batch, 1}, {Axis::feature, 2}}, place_of(ranks));
    Tensor<bf16, Invariant> dy(Shape{{Axis::batch, 1}, {Axis::feature, 2}}, place_of(ranks));
    for (std::size_t i = 0; i < 2; ++i) x[i] = dy[i] = bf16(1.0F);
    for (int step = 0; step < 2; ++step) {
      for (int part = 0; part < 300; ++part) {
        model.forward(x.view());
        model.backward(dy.view());
      }
      model.settle_gradients();
      for (const char* name : {"weight", "bias"}) {
        const auto gradient = model.gather_gradient(name);
        for (const float element : gradient.view().span()) CHECK(element == 300.0F);
      }
      model.next_step();  // and the next step begins anew
    }
  };
  using Both = Ends<Invariant, Invariant>;
  SingleRank alone;
  check(alone, Linear<split::none, 2, 2>{}, Both{});
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    check(ranks, ColumnParallelLinear<2, 2>{}, Both{});
    check(ranks, RowParallelLinear<2, 2>{}, Both{});
  });
}

TEST_CASE("an optimizer finds gradients where layers wrote them, and rounds what layers read") {
  const Sgd rule{.learning_rate = 0.1, .momentum = 0.9};
  const auto check = [&](auto& ranks) {
    Trained fused(ranks, rule), apart(ranks, rule);
    for (std::size_t step = 0; step < 6; ++step) {
      CAPTURE(step);
      fused.step(1 + step % 3);
      apart.step_by_hand(1 + step % 3, [] {});
      CHECK(fused.values() == apart.values());
      CHECK(fused.output() == apart.output());
      fused.model.values_changed();
      CHECK(fused.output() == apart.output());
    }
  };
  SingleRank alone;
  check(alone);
  for (const int size : {2, 3, 8}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) { check(ranks); });
  }
}

TEST_CASE("gradients can be looked at between batches, and lie in their memory once settled") {
  run_ranks(2, [](ThreadCommunicator& ranks) {
    const Sgd rule{.learning_rate = 1};
    Trained looked(ranks, rule), kept(ranks, rule);
    const std::span<const float> gradients = kept.model.gradients();
    for (std::size_t step = 0; step < 3; ++step) {
      Step to_look(looked.optimizer, 6 * (step + 1)), to_keep(kept.optimizer, 6 * (step + 1));
      for (std::size_t batch = 0; batch <= step; ++batch) {
        looked.add(to_look);
        kept.add(to_keep);
        const auto all = looked.model.gradients();
        CHECK(std::any_of(all.begin(), all.end(), [](float gradient) { return gradient != 0; }));
      }
      const Numbers before = kept.values();
      to_look.finish();
      kept.model.settle_gradients();
      for (std::size_t i = 0; i < before.size(); ++i) {
        CHECK(looked.model.values()[i] == static_cast<float>(before[i]) - gradients[i]);
      }
      kept.optimizer.step();
      kept.model.next_step();
    }
  });
}

TEST_CASE("layers read what was written to parameters between an optimizer's step and the next") {
  SingleRank alone;
  Trained trained(alone, Sgd{.learning_rate = 0.1});
  trained.step_by_hand(1, [&] {
    for (float& value : trained.model.values()) value *= 2;
  });
  const Numbers got = trained.output();
  trained.model.values_changed();
  CHECK(got == trained.output());
}
