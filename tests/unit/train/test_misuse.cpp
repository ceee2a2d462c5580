// Steps that are put together wrongly: refused, and nothing is changed.

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "shardwise/shardwise.hpp"
#include "unit/train/messages.hpp"

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

}  // namespace

TEST_CASE("a step ends only after a batch, with its own optimizer") {
  SingleRank alone;
  ModelOf<Whole, SingleRank> model(alone, Seed{1});
  ModelOf<Whole, SingleRank> other(alone, Seed{1});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
  Optimizer optimizer_of_other(other, Sgd{.learning_rate = 0.1});
  const auto x = made(in, {});
  const auto target = made({in[0], {Axis::feature, 3}}, {});
  train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer);
  const std::vector<double> before(model.values().begin(), model.values().end());
  CHECK_THROWS_AS(finish_step(model, optimizer), argument_error);
  accumulate_step(model, x.view(), target.view(), MeanSquaredError{}, 4);
  CHECK_THROWS_AS(finish_step(model, optimizer_of_other), argument_error);
  CHECK(std::vector<double>(model.values().begin(), model.values().end()) == before);
}

TEST_CASE("all batches of a step together have at most the samples that were said") {
  SingleRank alone;
  ModelOf<Whole, SingleRank> model(alone, Seed{1});
  const auto x = made(in, {});
  const auto target = made({in[0], {Axis::feature, 3}}, {});
  accumulate_step(model, x.view(), target.view(), MeanSquaredError{}, 6);
  const std::string message =
      message_of([&] { accumulate_step(model, x.view(), target.view(), MeanSquaredError{}, 6); });
  CHECK(contains(message, "4 samples after 4 in this step"));
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
    ModelOf<Images, ThreadCommunicator> model(Images{}, ranks, Seed{1}, images);
    const auto x = made({{Axis::batch, 2}, images[1], images[2], images[3]}, place_of(ranks));
    CHECK(model.forward(x.view()).size() == 4);
  });
}

TEST_CASE("the layer is found in a later batch of a step too, under the mask of that batch") {
  struct Masked : Sequential<Linear<split::none, 1, 1, false>, Dropout<1, 2>> {};
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
    accumulate_step(model, x.view(), target.view(), MeanSquaredError{}, 2);
    x[0] = 0.75 * std::numeric_limits<double>::max();  // doubled where the mask keeps it
    const std::string message =
        message_of([&] { accumulate_step(model, x.view(), target.view(), MeanSquaredError{}, 2); });
    if (contains(message, "1: Dropout")) ++overflowed;
    CHECK(!contains(message, "every layer's output is finite"));
  }
  CHECK(overflowed > 0);
}
