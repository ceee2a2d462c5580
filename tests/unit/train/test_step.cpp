// Whole steps: the same at every number of ranks, as planned, and all or nothing.
// Compiled alone: names of types are compared.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/messages.hpp"
#include "unit/train/rows.hpp"

using namespace testing;

namespace {

/// Four times the largest difference that rounding makes of losses near 2.3 and of parameters below
/// 1: 6.7e-16 with AVX-512, with AVX2 and with SSE4.1, as all of it is computed by plain loops.
constexpr double bound = 2.7e-15;

struct Mlp
    : Sequential<ColumnParallelLinear<9, 13>, Gelu, Dropout<1, 4>, RowParallelLinear<13, 10>> {};
struct ByClass
    : Sequential<RowParallelLinear<9, 13>, Gelu, Dropout<1, 4>, ColumnParallelLinear<13, 10>> {};
struct Whole
    : Sequential<Linear<split::none, 9, 13>, Gelu, Dropout<1, 4>, Linear<split::none, 13, 10>> {};

const Shape in{{Axis::batch, 7}, {Axis::feature, 9}};

template <class L, class E, class C>
using ModelOf = Model<L, Context<double, Reference, C>, E>;

using Numbers = std::vector<double>;

Numbers values_of(std::span<const double> span) { return {span.begin(), span.end()}; }

/// The losses of six steps, in two batches of 3 and 4 samples each if `parts`.
template <class L, class E, Communicator C>
Numbers losses(C& ranks, bool parts = false) {
  ModelOf<L, E, C> model(ranks, Seed{3});
  Optimizer optimizer(model, AdamW{.learning_rate = 0.05});
  const auto numbers = made(2, in.elements());
  const auto x = tensor_of<double>(in, place_of(ranks), numbers);
  const auto labels = made_labels(Shape{in[0]}, place_of(ranks), 10);
  const CrossEntropy loss{0.1};
  Numbers result;
  for (int i = 0; i < 6; ++i) {
    if (!parts) {
      result.push_back(train_step(model, x.view(), labels.view(), loss, optimizer));
      continue;
    }
    Step step(optimizer, 7);
    result.push_back(add_parts(step, x, labels, loss));
    step.finish();
  }
  return result;
}

/// The loss of one step, and the parameters behind it. Labels have weights, and one is ignored.
template <Communicator C>
Numbers weighted_step(C& ranks, bool parts) {
  ModelOf<Mlp, Ends<Invariant, Batch>, C> model(ranks, Seed{3});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.5});
  const auto x = tensor_of<double>(in, place_of(ranks), made(2, in.elements()));
  auto labels = made_labels(Shape{in[0]}, place_of(ranks), 10);
  labels[1] = -100;
  // begin: weights
  std::vector<double> numbers(10, 1.0);
  numbers[3] = 5;  // class 3 is rare
  const ClassWeights weights(numbers, Shape{{Axis::feature, 10}}, place_of(ranks));
  const auto there = model.to_device(weights);  // on the host this copies nothing
  MaskedCrossEntropy loss{.class_weights = there.view()};
  // end: weights
  for (const std::int32_t label : labels.view().span())
    if (label >= 0 && parts) loss.counted.value += weights[static_cast<std::size_t>(label)];
  Step step(optimizer, 7);
  Numbers result{parts ? add_parts(step, x, labels, loss)
                       : step.add(x.view(), labels.view(), loss)};
  step.finish();
  result.insert(result.end(), model.values().begin(), model.values().end());
  return result;
}

/// Calls a step that must throw Error, and sees that it changed nothing: what comes after it is
/// what comes without it. Returns the message.
template <class Error, Communicator C, class Spoil>
std::string harmless(C& ranks, Spoil&& spoil) {
  ModelOf<ByClass, Ends<Invariant, Feature>, C> model(ranks, Seed{3});
  ModelOf<ByClass, Ends<Invariant, Feature>, C> other(ranks, Seed{3});
  Optimizer optimizer(model, AdamW{});
  Optimizer other_optimizer(other, AdamW{});
  auto x = tensor_of<double>(in, place_of(ranks), made(2, in.elements()));
  auto labels = made_labels(Shape{in[0]}, place_of(ranks), 10);
  const CrossEntropy loss;
  train_step(model, x.view(), labels.view(), loss, optimizer);
  train_step(other, x.view(), labels.view(), loss, other_optimizer);
  Step half(optimizer, 14);
  half.add(x.view(), labels.view(), loss);
  auto bad_x = x;
  auto bad_labels = labels;
  spoil(bad_x, bad_labels);
  const Numbers before = values_of(model.values());
  const std::string said =
      message_of<Error>([&] { half.add(bad_x.view(), bad_labels.view(), loss); });
  CHECK(values_of(model.values()) == before);
  CHECK(model.step() == 2);
  CHECK(optimizer.steps() == 1);
  const double after = train_step(model, x.view(), labels.view(), loss, optimizer);
  CHECK(after == train_step(other, x.view(), labels.view(), loss, other_optimizer));
  CHECK(values_of(model.values()) == values_of(other.values()));
  return said;
}

}  // namespace

TEST_CASE("steps are the same at every number of ranks, in every layout of the logits") {
  SingleRank alone;
  const Numbers expected = losses<Mlp, Ends<Invariant, Invariant>>(alone);
  CHECK(expected[5] < expected[0]);
  for (const int size : {1, 2, 3, 4, 8}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      CHECK(largest_difference(losses<Mlp, Ends<Invariant, Invariant>>(ranks), expected) < bound);
      CHECK(largest_difference(losses<Mlp, Ends<Invariant, Batch>>(ranks), expected) < bound);
      CHECK(largest_difference(losses<ByClass, Ends<Invariant, Feature>>(ranks), expected) < bound);
      CHECK(largest_difference(losses<Whole, Ends<Invariant, Invariant>>(ranks), expected) < bound);
    });
  }
}

TEST_CASE("two batches with ignored and weighted labels are one batch of all of them") {
  for (const int size : {1, 2, 3, 8}) {
    run_ranks(size, [](ThreadCommunicator& ranks) {
      CHECK(largest_difference(weighted_step(ranks, true), weighted_step(ranks, false)) < bound);
    });
  }
}

TEST_CASE("data parallelism with uneven shards of the batch is one rank's step") {
  const auto train = [](auto& ranks) {
    using C = std::remove_reference_t<decltype(ranks)>;
    ModelOf<Whole, Ends<Batch, Batch>, C> model(ranks, Seed{3});
    Optimizer optimizer(model, Sgd{.learning_rate = 0.5, .momentum = 0.9});
    const auto whole = tensor_of<double>(in, place_of(ranks), made(2, in.elements()));
    Tensor<double, Batch> x(in, place_of(ranks));
    redistribute(ranks, model.run().pool, whole.view(), x.view());
    const auto labels = made_labels(Shape{in[0]}, place_of(ranks), 10);
    Numbers losses;
    for (int step = 0; step < 6; ++step) {
      losses.push_back(train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer));
    }
    return losses;
  };
  SingleRank alone;
  const Numbers expected = train(alone);
  for (const int size : {2, 3, 4, 8}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      CHECK(largest_difference(train(ranks), expected) < bound);
    });
  }
}

TEST_CASE("a step in uneven parts is the step in one") {
  SingleRank alone;
  const Numbers expected = losses<Mlp, Ends<Invariant, Invariant>>(alone);
  CHECK(largest_difference(losses<Mlp, Ends<Invariant, Invariant>>(alone, true), expected) < bound);
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    CHECK(largest_difference(losses<ByClass, Ends<Invariant, Feature>>(ranks, true), expected) <
          bound);
  });
}

TEST_CASE("a wrong label stops the step on every rank and changes nothing") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    const std::string said =
        harmless<argument_error>(ranks, [](auto&, auto& labels) { labels[6] = 10; });
    check_mentions(said, {"label 10 of row 6"});
  });
}

TEST_CASE("a NaN in the input of one rank stops the step on every rank and says where it is") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    const std::string said = harmless<numeric_error>(ranks, [&](auto& x, auto&) {
      if (ranks.rank() == 1) x[6 * 9 + 4] = x[6 * 9 + 5] = std::nan("");
    });
    CHECK(said.find("ByClass: the input holds a NaN in row 6, feature 4, on rank 1. ") == 0);
    check_mentions(said, {"look here: ByClass / "});
  });
}

TEST_CASE("an infinity in a split input is told with its row of the whole batch") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    ModelOf<Whole, Ends<Batch, Batch>, ThreadCommunicator> model(ranks, Seed{3});
    Optimizer optimizer(model, Sgd{});
    Tensor<double, Batch> x(in, place_of(ranks));
    if (ranks.rank() == 2) x[9 + 4] = -std::numeric_limits<double>::infinity();
    const auto labels = made_labels(Shape{in[0]}, place_of(ranks), 10);
    const std::string said = message_of<numeric_error>(
        [&] { train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer); });
    check_mentions(said, {"the input holds an infinity in row 6, feature 4, on rank 2"});
    x[9 + 4] = 0;
    CHECK_NOTHROW(model.find_non_finite(x.view()));
  });
}

TEST_CASE("a NaN in a weight of one rank is found by all, with its layer") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    ModelOf<ByClass, Ends<Invariant, Feature>, ThreadCommunicator> model(ranks, Seed{3});
    Optimizer optimizer(model, Sgd{});
    model.visit_parameters([&](auto& parameter) {
      if (parameter.name == "3.weight" && ranks.rank() == 2) parameter.value[0] = std::nan("");
    });
    const auto x = tensor_of<double>(in, place_of(ranks), made(2, in.elements()));
    const auto labels = made_labels(Shape{in[0]}, place_of(ranks), 10);
    const std::string said = message_of<numeric_error>(
        [&] { train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer); });
    check_mentions(said, {"ByClass / 3: "});
    check_mentions(said, {"nothing before it does"});
    CHECK(model.step() == 1);
  });
}

TEST_CASE("a loss that overflows though all outputs are finite says so") {
  SingleRank alone;
  ModelOf<Whole, Ends<Invariant, Invariant>, SingleRank> model(alone, Seed{3});
  Optimizer optimizer(model, Sgd{});
  const auto x = tensor_of<double>(in, {}, made(2, in.elements()));
  Tensor<double, Invariant> target(Shape{in[0], {Axis::feature, 10}});
  target[3] = 1e200;
  const std::string said = message_of<numeric_error>(
      [&] { train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer); });
  CHECK(said.find("the loss is inf") == 0);
}

TEST_CASE("a batch larger than its step is refused") {
  SingleRank alone;
  ModelOf<Whole, Ends<Invariant, Invariant>, SingleRank> model(alone, Seed{3});
  const auto x = tensor_of<double>(in, {}, made(2, in.elements()));
  const auto labels = made_labels(Shape{in[0]}, {}, 10);
  Optimizer optimizer(model, Sgd{});
  Step step(optimizer, 6);
  CHECK_THROWS_AS(step.add(x.view(), labels.view(), CrossEntropy{}), argument_error);
}

TEST_CASE("a step sends what plan_step says") {
  const auto check = [](auto architecture, auto ends, const auto& loss) {
    using L = decltype(architecture);
    using E = decltype(ends);
    run_ranks(3, [&](ThreadCommunicator& inner) {
      CountingCommunicator ranks(inner);
      ModelOf<L, E, decltype(ranks)> model(ranks, Seed{3});
      Optimizer optimizer(model, Sgd{});
      const auto whole = tensor_of<double>(in, place_of(ranks), made(2, in.elements()));
      const auto labels = made_labels(Shape{in[0]}, place_of(ranks), 10);
      Tensor<double, typename E::offered> x(in, place_of(ranks));
      redistribute(ranks, model.run().pool, whole.view(), x.view());
      ranks.clear();
      train_step(model, x.view(), labels.view(), loss, optimizer);
      const Plan plan = plan_step(model, in, loss);
      std::vector<Collective> planned;
      for (const auto* list : {&plan.forward, &plan.loss, &plan.backward, &plan.settle}) {
        planned.insert(planned.end(), list->begin(), list->end());
      }
      REQUIRE(planned.size() == ranks.log().size());
      for (std::size_t i = 0; i < planned.size(); ++i) {
        CHECK(planned[i].operation == ranks.log()[i].operation);
        CHECK(planned[i].dtype == ranks.log()[i].dtype);
        if (planned[i].operation == Operation::all_reduce) {
          CHECK(planned[i].elements == ranks.log()[i].elements);
        }
      }
    });
  };
  check(Mlp{}, Ends<Invariant, Invariant>{}, CrossEntropy{});
  check(Mlp{}, Ends<Invariant, Batch>{}, CrossEntropy{});
  check(ByClass{}, Ends<Invariant, Feature>{}, CrossEntropy{0.1});
  check(Whole{}, Ends<Batch, Batch>{}, CrossEntropy{});
}

TEST_CASE("right predictions are counted alike in every layout") {
  const Shape logits{{Axis::batch, 5}, {Axis::feature, 3}};
  // Identity of three classes; rows: right, wrong, a tie (the first counts), a NaN, right.
  const Numbers numbers{5, 1, 1, 5, 1, 1, 2, 2, 1, std::nan(""), 9, 1, -3, -2, -1};
  const auto count = [&]<class E>(auto& ranks, E) {
    using C = std::remove_reference_t<decltype(ranks)>;
    ModelOf<ColumnParallelLinear<3, 3, false>, E, C> model(ranks, Seed{1});
    const auto identity = tensor_of<double>(Shape{{Axis::output, 3}, {Axis::input, 3}},
                                            place_of(ranks), {1, 0, 0, 0, 1, 0, 0, 0, 1});
    model.set("weight", identity.view());
    const auto x = tensor_of<double>(logits, place_of(ranks), numbers);
    Tensor<std::int32_t, Invariant> labels(Shape{logits[0]}, place_of(ranks));
    const std::int32_t wanted[] = {0, 1, 0, 1, 2};
    std::copy_n(wanted, 5, labels.data());
    return count_correct(model, x.view(), labels.view());
  };
  SingleRank alone;
  CHECK(count(alone, Ends<Invariant, Invariant>{}) == 3);
  for (const int size : {1, 2, 4}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      CHECK(count(ranks, Ends<Invariant, Invariant>{}) == 3);
      CHECK(count(ranks, Ends<Invariant, Feature>{}) == 3);
      CHECK(count(ranks, Ends<Invariant, Batch>{}) == 3);
    });
  }
}
