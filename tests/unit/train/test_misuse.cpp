// Steps that are put together wrongly: refused, and nothing is changed.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "shardwise/shardwise.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::contains;
using testing::message_of;

namespace {

struct Whole : Sequential<Linear<split::none, 6, 5>, Relu, Linear<split::none, 5, 3>> {};

template <class L, class C, class E = Ends<Invariant, Invariant>>
using ModelOf = Model<L, Context<double, Reference, C>, E>;

const Shape in{{Axis::batch, 4}, {Axis::feature, 6}};

Tensor<double, Invariant> made(const Shape& shape, Place place) {
  Tensor<double, Invariant> x(shape, place);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 5) - 2.0;
  return x;
}

/// A model, its optimizer and a batch of four samples.
struct OneBatch {
  using M = ModelOf<Whole, SingleRank>;

  explicit OneBatch(SingleRank& alone)
      : model(alone, Seed{1}), optimizer(model, Sgd{.learning_rate = 0.1, .momentum = 0.9}) {}

  void add(Step<M, Sgd>& step) { step.add(x.view(), target.view(), MeanSquaredError{}); }

  void train(std::size_t batches = 1) {
    Step step(optimizer, 4 * batches);
    for (std::size_t i = 0; i < batches; ++i) add(step);
    step.finish();
  }

  void backward() { model.backward(model.forward(x.view())); }

  std::vector<double> values() { return {model.values().begin(), model.values().end()}; }

  M model;
  Optimizer<Sgd, M> optimizer;
  Tensor<double, Invariant> x = made(in, {});
  Tensor<double, Invariant> target = made({in[0], {Axis::feature, 3}}, {});
};

}  // namespace

TEST_CASE("a step ends only after a batch, and only once") {
  SingleRank alone;
  OneBatch t(alone);
  for (const std::size_t samples : {0U, 4U}) {
    Step step(t.optimizer, samples);
    CHECK(contains(message_of([&] { step.finish(); }), "but its batches had 0"));
  }
  Step step(t.optimizer, 4);
  t.add(step);
  step.finish();
  const std::vector<double> after = t.values();
  CHECK(contains(message_of([&] { step.finish(); }), "finish() after the step's end"));
  CHECK(contains(message_of([&] { t.add(step); }), "add() after the step's end"));
  step.discard();
  CHECK(t.values() == after);
  CHECK(t.model.step() == 2);
}

TEST_CASE("an optimizer of another model is refused") {
  SingleRank alone;
  OneBatch t(alone), other(alone);
  CHECK(contains(message_of([&] {
                   train_step(t.model, t.x.view(), t.target.view(), MeanSquaredError{},
                              other.optimizer);
                 }),
                 "train_step: the optimizer is of another model"));
  CHECK(t.values() == other.values());
}

TEST_CASE("a model has one step at a time") {
  SingleRank alone;
  OneBatch t(alone), other(alone);
  const auto refused = [&] {
    const std::string message = message_of([&] { Step second(t.optimizer, 4); });
    CHECK(contains(message, "another step of this model is under way"));
    CHECK(contains(message_of([&] { t.train(); }), "another step of this model is under way"));
  };
  {
    Step step(t.optimizer, 8);
    refused();
    t.add(step);
    refused();
    t.add(step);
    step.finish();
  }
  other.train(2);
  CHECK(t.values() == other.values());
  t.backward();
  refused();
  t.model.discard_step();
  t.train();
  other.train();
  CHECK(t.values() == other.values());
}

TEST_CASE("a step that is left, discarded or interrupted has never been") {
  SingleRank alone;
  OneBatch t(alone), other(alone);
  const auto as_other = [&] {
    t.train(2);
    other.train(2);
    CHECK(t.values() == other.values());
    CHECK(t.optimizer.steps() == other.optimizer.steps());
    CHECK(t.model.step() == other.model.step());
  };
  {
    Step left(t.optimizer, 8);
    t.add(left);
  }
  as_other();
  Step discarded(t.optimizer, 8);
  t.add(discarded);
  discarded.discard();
  as_other();
  {
    Step interrupted(t.optimizer, 8);
    t.add(interrupted);
    t.model.discard_step();
    CHECK(contains(message_of([&] { t.add(interrupted); }), "after the step's end"));
    Step next(t.optimizer, 8);  // of which those before it know nothing
    t.add(next);
    interrupted.discard();
    discarded.discard();
    t.add(next);
    next.finish();
    other.train(2);
  }
  as_other();
}

TEST_CASE("all batches of a step together have at most the samples that were said") {
  SingleRank alone;
  OneBatch t(alone);
  const std::vector<double> before = t.values();
  Step step(t.optimizer, 6);
  t.add(step);
  CHECK(contains(message_of([&] { t.add(step); }), "4 samples after 4 in this step"));
  CHECK(contains(message_of([&] { step.finish(); }), "forgotten because of an error"));
  CHECK(t.values() == before);
  CHECK(t.model.step() == 1);
  CHECK(t.model.run().step.gradients == GradientState::none);
}

TEST_CASE("gradients that were settled are settled once, and nothing is added to them") {
  using Batch = Sharded<Axis::batch>;
  run_ranks(3, [](ThreadCommunicator& ranks) {
    ModelOf<Whole, ThreadCommunicator, Ends<Batch, Batch>> model(ranks, Seed{1});
    Tensor<double, Batch> x(in, place_of(ranks));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.0;
    const auto y = model.forward(x.view());
    const std::vector<double> ones(y.size(), 1.0);
    const View<const double, Batch> dy(ones.data(), y.global(), place_of(ranks));
    model.backward(dy);
    model.settle_gradients();
    const std::vector<double> settled(model.gradients().begin(), model.gradients().end());
    model.settle_gradients();
    CHECK(std::vector<double>(model.gradients().begin(), model.gradients().end()) == settled);
    model.forward(x.view());
    CHECK_THROWS_AS(model.backward(dy), argument_error);
    model.next_step();
    model.forward(x.view());
    model.backward(dy);
  });
}

TEST_CASE("an optimizer refuses gradients that are not settled, and the step can go on") {
  using Batch = Sharded<Axis::batch>;
  run_ranks(3, [](ThreadCommunicator& ranks) {
    ModelOf<Whole, ThreadCommunicator, Ends<Batch, Batch>> model(ranks, Seed{1});
    Optimizer optimizer(model, Sgd{.learning_rate = 0.5});
    Tensor<double, Batch> x(in, place_of(ranks));
    for (double& number : x.span()) number = 1 + ranks.rank();
    const auto y = model.forward(x.view());
    const std::vector<double> ones(y.size(), 1.0);
    model.backward(View<const double, Batch>(ones.data(), y.global(), place_of(ranks)));
    const std::vector<double> before(model.values().begin(), model.values().end());
    for (const auto& step :
         {std::function([&] { optimizer.end_step(); }), std::function([&] { optimizer.step(); }),
          std::function([&] { optimizer.begin_update(); })}) {
      CHECK(contains(message_of(step), "Optimizer: step 1 before settle_gradients"));
      CHECK(std::vector<double>(model.values().begin(), model.values().end()) == before);
      CHECK(optimizer.steps() == 0);
    }
    model.settle_gradients();
    optimizer.end_step();
    std::vector<double> sums(before.size());
    ranks.all_reduce<double>(model.values(), sums);
    for (std::size_t i = 0; i < sums.size(); ++i)
      CHECK(std::abs(sums[i] - 3 * model.values()[i]) < 1e-12);  // the same on every rank
    CHECK(std::vector<double>(model.values().begin(), model.values().end()) != before);
  });
}

TEST_CASE("an optimizer refuses a step without gradients of its own, and the step can go on") {
  SingleRank alone;
  OneBatch t(alone), other(alone);
  const auto state = [&] {
    const auto moments = t.optimizer.moments();
    return std::tuple(t.values(), std::vector<double>(moments.begin(), moments.end()),
                      t.optimizer.steps(), t.model.step());
  };
  const auto refused = [&](const std::string& why) {
    const auto before = state();
    const std::string said = "Optimizer: step " + std::to_string(t.optimizer.steps() + 1) + why;
    for (const auto& step : {std::function([&] { t.optimizer.end_step(); }),
                             std::function([&] { t.optimizer.step(); }),
                             std::function([&] { t.optimizer.begin_update(); })}) {
      CHECK(contains(message_of(step), said));
      CHECK(state() == before);
    }
  };
  const auto settle = [](OneBatch& one) {
    one.backward();
    one.model.settle_gradients();
  };
  const std::string none = " without gradients: no backward ran";
  refused(none);
  t.train();
  refused(none);
  t.model.forward(t.x.view());
  refused(none);
  settle(t);
  t.optimizer.step();
  refused(" by gradients that the step before has applied already");
  CHECK(contains(message_of([&] { t.backward(); }),
                 "has applied the gradients: call next_step() first"));
  t.model.settle_gradients();  // of which there are none
  refused(" by gradients");
  t.model.next_step();
  refused(none);

  other.train();
  settle(other);
  other.optimizer.end_step();
  CHECK(t.values() == other.values());
}

TEST_CASE("an optimizer applies gradients that the program has written, once it says so") {
  SingleRank alone;
  OneBatch t(alone);
  t.backward();
  t.model.discard_step();
  for (double& gradient : t.model.gradients()) gradient = 2;
  CHECK(contains(message_of([&] { t.optimizer.end_step(); }), "calls model.gradients_written()"));
  t.model.gradients_written();
  t.model.settle_gradients();
  CHECK(clip_gradients(t.model, 1e6) == std::sqrt(4.0 * static_cast<double>(t.values().size())));
  std::vector<double> expected = t.values();
  for (double& value : expected) value -= 0.1 * 2;
  t.optimizer.end_step();
  CHECK(t.values() == expected);
  CHECK(contains(message_of([&] { t.optimizer.end_step(); }), "step 2 without gradients"));
}

TEST_CASE("parameters behind axes that nobody knows are refused, not guessed") {
  using Images = Sequential<Flatten, RowParallelLinear<147, 2>>;
  run_ranks(2, [](ThreadCommunicator& ranks) {
    const std::string message =
        message_of([&] { ModelOf<Images, ThreadCommunicator> model(ranks, Seed{1}); });
    CHECK(contains(message, "give the Model the shape of its input"));
    const Shape some{
        {Axis::batch, dynamic}, {Axis::channel, 3}, {Axis::height, dynamic}, {Axis::width, 7}};
    CHECK_THROWS_AS((ModelOf<Images, ThreadCommunicator>(Images{}, ranks, Seed{1}, some)),
                    shape_error);
    const Shape images{
        {Axis::batch, dynamic}, {Axis::channel, 3}, {Axis::height, 7}, {Axis::width, 7}};
    ModelOf<Images, ThreadCommunicator> model(ranks, Seed{1}, images);
    const auto x = made({{Axis::batch, 2}, images[1], images[2], images[3]}, place_of(ranks));
    CHECK(model.forward(x.view()).size() == 4);
    Reference backend;
    ModelOf<Images, ThreadCommunicator> other(ranks, Seed{1}, images, backend);
    CHECK(&other.backend() == &backend);
    CHECK(other.forward(x.view())[3] == model.forward(x.view())[3]);
  });
}

TEST_CASE("a model of ids that was given no shape asks for it") {
  using Words = Sequential<Embedding<10, 4>, Linear<split::none, 4, 2>>;
  SingleRank alone;
  const std::string message = message_of([&] { ModelOf<Words, SingleRank> model(alone, Seed{1}); });
  CHECK(contains(message,
                 "Embedding<10, 4>: the shape of the layer's parameters follows from its "
                 "input, of which nothing is known: give the Model the shape"));
}

TEST_CASE("parameters behind a layer that states its features need no shape of the input") {
  using Rows = Sequential<Flatten, RmsNorm<4, Affine::none>, Linear<split::none, 4, 2>>;
  SingleRank alone;
  CHECK(message_of([&] { ModelOf<Rows, SingleRank> model(alone, Seed{1}); }) == "");
}

namespace {

/// y = w x, masked: with w = 1, large numbers overflow where the mask keeps them.
struct Masked : Sequential<Linear<split::none, 1, 1, false>, Dropout<1, 2>> {};

}  // namespace

TEST_CASE("the layer is found in a later batch of a step too, under the mask of that batch") {
  SingleRank alone;
  int overflowed = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ModelOf<Masked, SingleRank> model(alone, Seed{seed});
    model.values()[0] = 1.0;
    model.values_changed();
    const Shape one{{Axis::batch, 1}, {Axis::feature, 1}};
    auto x = made(one, {});
    const auto target = made(one, {});
    x[0] = 1.0;
    Optimizer optimizer(model, Sgd{});
    Step step(optimizer, 2);
    step.add(x.view(), target.view(), MeanSquaredError{});
    x[0] = 0.75 * std::numeric_limits<double>::max();  // doubled where the mask keeps it
    const std::string message =
        message_of([&] { step.add(x.view(), target.view(), MeanSquaredError{}); });
    if (contains(message, "1: Dropout")) ++overflowed;
    CHECK(!contains(message, "every layer's output is finite"));
  }
  CHECK(overflowed > 0);
}

TEST_CASE("the layer is looked for with the numbers of the batch in that flight") {
  SingleRank alone;
  int unlike = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ModelOf<Masked, SingleRank> model(alone, Seed{seed});
    model.values()[0] = 1.0;
    model.values_changed();
    model.reserve_flights(2);
    const double large = 0.75 * std::numeric_limits<double>::max();
    auto first = made({{Axis::batch, 3}, {Axis::feature, 1}}, {});
    auto second = made({{Axis::batch, 1}, {Axis::feature, 1}}, {});
    first[2] = second[0] = large;
    const auto forward = [&] {
      return std::array{model.forward(first.view())[2] > large,
                        model.forward(second.view(), {.flight = Flight{1}})[0] > large};
    };
    const auto overflows = forward();
    CHECK(message_of([&] { model.find_non_finite(first.view()); }).empty() == !overflows[0]);
    forward();
    CHECK(message_of([&] { model.find_non_finite(second.view(), Flight{1}); }).empty() ==
          !overflows[1]);
    if (overflows[0] != overflows[1]) ++unlike;
  }
  CHECK(unlike > 0);
}

TEST_CASE("a step that has fewer samples than it said does not end, and can be completed") {
  SingleRank alone;
  OneBatch t(alone), other(alone);
  Step step(t.optimizer, 8);
  t.add(step);
  CHECK(contains(message_of([&] { step.finish(); }),
                 "said to have 8 samples, but its batches had 4"));
  t.add(step);
  step.finish();
  CHECK(t.model.step() == 2);
  other.train(2);
  CHECK(t.values() == other.values());
}

TEST_CASE("a step counts the batches that ran backward, and waits for those of other flights") {
  SingleRank alone;
  OneBatch t(alone), other(alone);
  t.model.reserve_flights(2);
  const std::string under_way = "another flight than flight 0 went forward";
  const auto missing = [&](Step<OneBatch::M, Sgd>& step) {
    return contains(message_of([&] { step.finish(); }), "its batches had 4");
  };
  {
    Step step(t.optimizer, 8);
    t.model.forward(t.x.view(), {.flight = Flight{1}});
    t.add(step);
    CHECK(contains(message_of([&] { step.finish(); }), "Step: finish(): a batch in " + under_way));
    t.model.evaluate(t.x.view());
    t.model.backward(t.model.forward(t.x.view(), {.flight = Flight{1}}), Flight{1});
    t.model.forward(t.x.view());
    CHECK(contains(message_of([&] { t.add(step); }), "4 samples after 8"));
  }
  {
    Step step(t.optimizer, 8);
    t.add(step);
    t.model.evaluate(t.x.view());
    t.model.forward(t.x.view());
    CHECK(missing(step));
    t.add(step);
    step.finish();
  }
  other.train(2);
  CHECK(t.values() == other.values());

  t.model.forward(t.x.view(), {.flight = Flight{1}});
  CHECK(contains(message_of([&] { Step step(t.optimizer, 4); }), "Step: a batch in " + under_way));
  CHECK(contains(message_of([&] { t.train(); }), under_way));
  t.model.discard_step();
  t.train();
  other.train();
  CHECK(t.values() == other.values());
}

TEST_CASE("a forward that nobody takes backward changes nothing") {
  struct Masked : Sequential<Linear<split::none, 6, 5>, Dropout<1, 2>, Linear<split::none, 5, 3>> {
  };
  SingleRank alone;
  const auto x = made(in, {});
  const auto target = made({in[0], {Axis::feature, 3}}, {});
  const auto values = [&](int looks) {
    ModelOf<Masked, SingleRank> model(alone, Seed{1});
    Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
    for (int i = 0; i < 2; ++i) {
      Step step(optimizer, 8);
      for (int batch = 0; batch < 2; ++batch) {
        for (int look = 0; look < looks; ++look) model.forward(x.view());
        step.add(x.view(), target.view(), MeanSquaredError{});
      }
      step.finish();
    }
    return std::vector<double>(model.values().begin(), model.values().end());
  };
  CHECK(values(1) == values(0));
  CHECK(values(3) == values(0));
}

TEST_CASE("dropout in a later batch of a step needs the batch as outermost axis") {
  SingleRank alone;
  using Use = TrainWithInputGradient;
  const Shape text{{Axis::sequence, 2}, {Axis::batch, 4}, {Axis::feature, 3}};
  Model<Dropout<1, 2>, Context<double, Reference, SingleRank>, Ends<Invariant, Invariant>, Use>
      model(Dropout<1, 2>{}, alone, Seed{3}, text);
  const auto x = made(text, {});
  for (int step = 0; step < 2; ++step) {
    model.forward(x.view());
    model.backward(x.view());
    CHECK(contains(message_of([&] { model.forward(x.view()); }), "batch as outermost axis"));
    CHECK(model.evaluate(x.view()).size() == x.size());
    model.next_step();
  }
}

TEST_CASE("a sum over ranks or of a residual that overflows is named") {
  struct Net : Sequential<RowParallelLinear<4, 2>, Relu> {};
  struct Ends_ : Sequential<RowParallelLinear<4, 2>> {};
  struct Stream : Sequential<Residual<Linear<split::none, 4, 4>>> {};
  const auto said = [](auto layers, float input) {
    return message_of([&] {
      run_ranks(2, [&](ThreadCommunicator& ranks) {
        using L = decltype(layers);
        Model<L, Context<fp16, Reference, ThreadCommunicator>> model(ranks, Seed{1});
        Optimizer optimizer(model, Sgd{});
        for (auto& v : model.values()) v = fp16(100.0F);
        model.values_changed();
        const Shape shape{{Axis::batch, 1}, {Axis::feature, 4}};
        Tensor<fp16, Invariant> x(shape, place_of(ranks));
        Tensor<fp16, Invariant> target(model.layers().output_shape(shape), place_of(ranks));
        for (fp16& v : x.view().span()) v = fp16(input);
        train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer);
      });
    });
  };
  // 2 * 20,000 + 100 on a rank is a number of fp16, and twice that is none.
  const std::string in_between = said(Net{}, 200);
  CAPTURE(in_between);
  CHECK(contains(in_between, "1: Relu: the sum over the ranks of what the layer before gives"));
  const std::string at_end = said(Ends_{}, 200);
  CAPTURE(at_end);
  CHECK(contains(at_end, "Ends_: the sum over the ranks of what the layer before gives"));
  const std::string of_layer = said(Stream{}, 200);
  CAPTURE(of_layer);
  CHECK(contains(of_layer, ": the output holds"));
  const std::string of_sum = said(Stream{}, 163.25F);  // 4 * 16,325 + 100 is a number, plus x none
  CAPTURE(of_sum);
  CHECK(contains(of_sum, " / Sum: the output holds"));
}

TEST_CASE("targets of another shape are refused before anything is sent") {
  using Net = Sequential<ColumnParallelLinear<6, 5>, RowParallelLinear<5, 3>>;
  run_ranks(2, [](ThreadCommunicator& inner) {
    CountingCommunicator ranks(inner);
    ModelOf<Net, decltype(ranks)> model(ranks, Seed{1});
    Optimizer optimizer(model, Sgd{});
    const Place place = place_of(ranks);
    const auto x = made(in, place);
    const Tensor<std::int32_t, Invariant> labels(Shape{{Axis::batch, 5}}, place);
    const auto target = made({in[0], {Axis::feature, 4}}, place);
    ranks.clear();
    CHECK(contains(
        message_of<shape_error>([&] { train_step(model, x, labels, CrossEntropy{}, optimizer); }),
        "the labels are a tensor [batch 5]"));
    CHECK_THROWS_AS(train_step(model, x, labels, MaskedCrossEntropy{}, optimizer), shape_error);
    const Tensor<std::int32_t, Invariant> fitting(Shape{in[0]}, place);
    const Tensor<double, Invariant> weights(Shape{{Axis::feature, 4}}, place);
    CHECK(contains(message_of<shape_error>([&] {
                     train_step(model, x, fitting,
                                MaskedCrossEntropy{.class_weights = weights.view()}, optimizer);
                   }),
                   "the class weights are a tensor [feature 4]"));
    CHECK(contains(message_of<shape_error>([&] {
                     train_step(model, x, target, Weighted{MeanSquaredError{}, 0.5}, optimizer);
                   }),
                   "the target [batch 4, feature 4]"));
    CHECK(ranks.log().empty());
    CHECK(contains(message_of<shape_error>(
                       [&] { train_step(model, target, target, MeanSquaredError{}, optimizer); }),
                   "ColumnParallelLinear"));
  });
}
