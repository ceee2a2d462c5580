// What a model says when it is used wrongly: the same on every rank, with model, layer and number,
// and the model still works afterwards.
// Compiled alone: names of types are compared.

#include <doctest/doctest.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::contains;
using testing::message_of;

namespace {

constexpr int ranks = 3;

struct Mlp : Sequential<ColumnParallelLinear<7, 6>, Relu, RowParallelLinear<6, 5>> {};
using Context_ = Context<float, Reference, ThreadCommunicator>;
using Whole = Ends<Invariant, Invariant>;
template <class A, class E = Whole, class Use = TrainWithInputGradient>
using Trained = Model<A, Context_, E, Use>;

const Shape good{{Axis::batch, 4}, {Axis::feature, 7}};

template <Layout L = Invariant>
Tensor<float, L> tensor(const Shape& shape, Place place) {
  return testing::part_of<float, L>(testing::elements(testing::Data::integers, 1, shape.elements()),
                                    shape, place);
}

/// What f throws, on all ranks together, up to where each names itself; empty if one rank throws
/// nothing or another type.
template <class Error, class F>
std::string message_of_all(F f) {
  std::mutex mutex;
  std::multiset<std::string> messages;
  run_ranks(ranks, [&](ThreadCommunicator& c) {
    std::string message = message_of<Error>([&] { f(c); });
    message = message.substr(0, message.find("but this is rank " + std::to_string(c.rank())));
    const std::scoped_lock lock(mutex);
    messages.insert(message);
  });
  return messages.count(*messages.begin()) == ranks ? *messages.begin() : "";
}

bool begins(const std::string& text, const std::string& with) {
  const bool does = text.starts_with(with);
  if (!does) MESSAGE(text);
  return does;
}
/// After something went wrong: a step gives what it gives in a new model.
template <class M>
bool works_like_new(M& model, ThreadCommunicator& c) {
  const auto step = [&](M& m) {
    m.discard_step();
    const auto x = tensor(good, place_of(c));
    const auto y = m.forward(x.view());
    const auto dy = tensor(y.global(), place_of(c));
    std::vector<float> numbers(y.data(), y.data() + y.size());
    const auto dx = m.backward(dy.view());
    numbers.insert(numbers.end(), dx.data(), dx.data() + dx.size());
    m.settle_gradients();
    numbers.insert(numbers.end(), m.gradients().begin(), m.gradients().end());
    return numbers;
  };
  M other(c, Seed{1});
  return step(model) == step(other);
}

/// The message of a wrong use of an Mlp, which has to work afterwards.
template <class Error, class F>
std::string misuse(F f) {
  return message_of_all<Error>([&](ThreadCommunicator& c) {
    Trained<Mlp> model(c, Seed{1});
    try {
      f(model, c);
    } catch (...) {
      CHECK(works_like_new(model, c));
      throw;
    }
  });
}

// Wrong in ways that only a run can show.
struct Any : Sequential<ColumnParallelLinear<dynamic, dynamic>, Relu,
                        Sequential<RowParallelLinear<dynamic, dynamic>>> {
  using Sequential::Sequential;
};
using Five = ColumnParallelLinear<6, dynamic>;
struct Widens : Sequential<RowParallelLinear<7, 6>, Residual<Five>> {
  using Sequential::Sequential;
};
struct Twice : Repeat<2, Sequential<ColumnParallelLinear<7, 5>, RowParallelLinear<5, 7>>> {};
struct Again : Sequential<RowParallelLinear<7, 6>, Repeat<3, Five>> {
  using Sequential::Sequential;
};

/// Refuses to be any but the first layer that draws random numbers.
struct Second : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;
  template <class Frame, class X, class Y>
  void forward(Frame& frame, X, Y) const {
    if (frame.random().uniform(0) != RandomStream(Seed{1}, 0, 1).uniform(0))
      throw argument_error("not the first");
  }
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY, DX) const {}
  static constexpr bool random = true;
  static std::string name() { return "Second"; }
};

}  // namespace

TEST_CASE("an input of other features names model, layer and number") {
  const std::string message = misuse<shape_error>([](auto& model, auto& c) {
    model.forward(tensor({{Axis::batch, 4}, {Axis::feature, 8}}, place_of(c)).view());
  });
  CHECK(begins(message, "Mlp / 0: ColumnParallelLinear<7, 6"));
  check_mentions(message, {"[batch 4, feature 8]", "[feature 7]"});
}

TEST_CASE("an input in other grains than bound") {
  const std::string message = misuse<shape_error>([](auto& model, auto& c) {
    model.forward(tensor({{Axis::batch, 4}, {Axis::feature, 1, 7}}, place_of(c)).view());
  });
  CHECK(contains(message, "[batch 4, feature 1*7]"));
}

TEST_CASE("an input with another innermost axis") {
  const std::string message = misuse<shape_error>([](auto& model, auto& c) {
    model.evaluate(tensor({{Axis::feature, 7}, {Axis::batch, 4}}, place_of(c)).view());
  });
  CHECK(begins(message, "Mlp / 0: ColumnParallelLinear<7, 6"));
}

TEST_CASE("another rank's part of an input") {
  const std::string message = misuse<argument_error>([](auto& model, auto&) {
    model.forward(tensor(good, Place{0, 1}).view());
  });
  CHECK(begins(message, "Mlp: the input is the part of rank 0 of 1, "));
}

TEST_CASE("sizes given at construction that do not meet name the layer that finds out") {
  const Any wrong(
      ColumnParallelLinear<dynamic, dynamic>(7, 6), Relu{},
      Sequential<RowParallelLinear<dynamic, dynamic>>(RowParallelLinear<dynamic, dynamic>(9, 5)));
  const std::string message = message_of_all<shape_error>(
      [&](ThreadCommunicator& c) { Trained<Any> model(wrong, c, Seed{1}); });
  CHECK(begins(message, "Any / 2: Sequential<"));
  check_mentions(message, {" / 0: RowParallelLinear<", "[feature 6]", "9 input features"});
}

TEST_CASE("a shape to bind to that the first layer does not take names the first layer") {
  const std::string message = message_of_all<shape_error>([](ThreadCommunicator& c) {
    Trained<Mlp> model(Mlp{}, c, Seed{1}, {{Axis::batch, dynamic}, {Axis::feature, 8}});
  });
  CHECK(begins(message, "Mlp / 0: ColumnParallelLinear<7, 6"));
  CHECK(contains(message, "[batch ?, feature 8]"));
}

TEST_CASE("blocks that do not bring back their shape are found when they are bound") {
  const std::string residual = message_of_all<shape_error>([](ThreadCommunicator& c) {
    Trained<Widens> model(Widens({}, Residual(Five(5))), c, Seed{1});
  });
  CHECK(begins(residual, "Widens / 1: Residual<"));
  CHECK(!contains(residual, " / a "));  // no place is announced that does not come
  check_mentions(residual, {"[feature 6]", "[feature 5]"});

  const std::string repeat = message_of_all<shape_error>([](ThreadCommunicator& c) {
    Trained<Again> model(Again({}, Repeat<3, Five>(Five(5))), c, Seed{1});
  });
  CHECK(begins(repeat, "Again / 1: Repeat<3, "));

  const std::string inside = message_of_all<shape_error>([](ThreadCommunicator& c) {
    Trained<Twice> model(Twice{}, c, Seed{1}, {{Axis::batch, dynamic}, {Axis::feature, 8}});
  });
  CHECK(begins(inside, "Twice / time 0 / 0: ColumnParallelLinear<7, 5"));
}

TEST_CASE("an error in the second of repeated blocks says so") {
  const std::string message = message_of_all<argument_error>([](ThreadCommunicator& c) {
    Trained<Repeat<2, Sequential<Second>>> model(c, Seed{1});
    model.forward(tensor(good, place_of(c)).view());
  });
  CHECK(contains(message, " / time 1 / 0: Second: not the first"));
}

TEST_CASE("backward without a forward") {
  const Shape out{{Axis::batch, 4}, {Axis::feature, 5}};
  const std::string never = misuse<argument_error>(
      [&](auto& model, auto& c) { model.backward(tensor(out, place_of(c)).view()); });
  CHECK(begins(never, "Mlp: backward without a forward before it"));

  const std::string twice = misuse<argument_error>([&](auto& model, auto& c) {
    const auto x = tensor(good, place_of(c));  // backward reads it again
    model.forward(x.view());
    model.backward(tensor(out, place_of(c)).view());
    model.backward(tensor(out, place_of(c)).view());
  });
  CHECK(twice == never);

  const std::string evaluated = misuse<argument_error>([&](auto& model, auto& c) {
    model.forward(tensor(good, place_of(c)).view());
    model.evaluate(tensor(good, place_of(c)).view());
    model.backward(tensor(out, place_of(c)).view());
  });
  CHECK(evaluated == never);

  const std::string failed = misuse<argument_error>([&](auto& model, auto& c) {
    model.forward(tensor(good, place_of(c)).view());
    CHECK_THROWS_AS(model.forward(tensor(out, place_of(c)).view()), shape_error);
    model.backward(tensor(out, place_of(c)).view());
  });
  CHECK(failed == never);
}

TEST_CASE("a gradient that is not one of the output") {
  const std::string rows = misuse<shape_error>([](auto& model, auto& c) {
    model.forward(tensor(good, place_of(c)).view());
    model.backward(tensor({{Axis::batch, 3}, {Axis::feature, 5}}, place_of(c)).view());
  });
  CHECK(begins(rows, "Mlp: the gradient of the output is a tensor [batch 3, feature 5]"));
  CHECK(contains(rows, "[batch 4, feature 5]"));

  const std::string part = misuse<argument_error>([](auto& model, auto& c) {
    model.forward(tensor(good, place_of(c)).view());
    model.backward(tensor({{Axis::batch, 4}, {Axis::feature, 5}}, Place{1, 2}).view());
  });
  CHECK(begins(part, "Mlp: the gradient of the output is the part of rank 1 of 2, "));
}

TEST_CASE("a tensor that was moved from") {
  const std::string input = misuse<argument_error>([](auto& model, auto& c) {
    auto x = tensor(good, place_of(c));
    const auto kept = std::move(x);
    model.forward(x.view());  // NOLINT(bugprone-use-after-move)
  });
  CHECK(begins(input, "Mlp: the input has a shape, but no memory"));

  const std::string gradient = misuse<argument_error>([](auto& model, auto& c) {
    model.forward(tensor(good, place_of(c)).view());
    auto dy = tensor({{Axis::batch, 4}, {Axis::feature, 5}}, place_of(c));
    const auto kept = std::move(dy);
    model.backward(dy.view());  // NOLINT(bugprone-use-after-move)
  });
  CHECK(begins(gradient, "Mlp: the gradient of the output has a shape, but no memory"));

  const std::string target = misuse<argument_error>([](auto& model, auto& c) {
    Optimizer optimizer(model, Sgd{});
    Tensor<std::int32_t, Invariant> labels({{Axis::batch, 4}}, place_of(c));
    const auto kept = std::move(labels);
    train_step(model, tensor(good, place_of(c)).view(),
               labels.view(),  // NOLINT(bugprone-use-after-move)
               CrossEntropy{}, optimizer);
  });
  CHECK(begins(target, "the target has a shape, but no memory"));
}

TEST_CASE("a layout for which the input has no axis") {
  using Sequence = Sharded<Axis::sequence>;
  const std::string message = message_of_all<shape_error>([](ThreadCommunicator& c) {
    Trained<Mlp, Ends<Invariant, Sequence>> model(c, Seed{1});
    model.forward(tensor(good, place_of(c)).view());
  });
  CHECK(begins(message, "Mlp"));
  CHECK(contains(message, "cannot be laid out as Sharded<sequence>"));
}

TEST_CASE("parameters that are not there, or of another shape") {
  const std::string gather =
      misuse<argument_error>([](auto& model, auto&) { model.gather("1.weight"); });
  CHECK(gather ==
        "Mlp has no parameter named '1.weight'; it has 0.weight, 0.bias, 2.weight, 2.bias");
  const std::string gradient =
      misuse<argument_error>([](auto& model, auto&) { model.gather_gradient("bias"); });
  CHECK(begins(gradient, "Mlp has no parameter named 'bias'"));
  const std::string set = misuse<argument_error>([](auto& model, auto& c) {
    model.set("", tensor(Shape{{Axis::output, 6}, {Axis::input, 7}}, place_of(c)).view());
  });
  CHECK(begins(set, "Mlp has no parameter named ''"));

  // Which rank speaks is in the message.
  run_ranks(ranks, [](ThreadCommunicator& c) {
    Trained<Mlp> model(c, Seed{1});
    const auto turned = tensor(Shape{{Axis::output, 7}, {Axis::input, 6}}, place_of(c));
    CHECK_THROWS_AS(model.set("0.weight", turned.view()), shape_error);
    CHECK(works_like_new(model, c));
  });
}

TEST_CASE("what run_ranks throws says the rank too") {
  CHECK_THROWS_WITH_AS(run_ranks(ranks,
                                 [](ThreadCommunicator& c) {
                                   Trained<Mlp> model(c, Seed{1});
                                   if (c.rank() == 1) model.gather("x");
                                   c.barrier();
                                 }),
                       doctest::Contains("rank 1: Mlp has no parameter named 'x'"), argument_error);
}
