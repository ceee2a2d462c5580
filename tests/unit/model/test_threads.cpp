// A model that two threads of a program use: the second one is told, and the first one goes on.

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::contains;
using testing::message_of;

namespace {

thread_local std::function<void()> inside;  // is run once, when a layer of this thread's model runs

/// Runs `inside` in the first layer or phase that it sees.
struct Interrupting {
  void begin(const Work& work) const {
    if (inside && work.kind == Work::Kind::compute) std::exchange(inside, nullptr)();
  }
  void end() const noexcept {}
};

struct Mlp : Sequential<ColumnParallelLinear<7, 6>, Relu, RowParallelLinear<6, 5>> {};
template <class Use = Train>
using Net = Model<Mlp, Context<double, Reference, SingleRank, Interrupting>,
                  Ends<Invariant, Invariant>, Use>;

Tensor<double, Invariant> tensor(std::size_t rows, std::size_t width, double first = 1) {
  Tensor<double, Invariant> made({{Axis::batch, rows}, {Axis::feature, width}}, {});
  for (double& one : made.span()) one = first = -first * 0.75 + 0.1;
  return made;
}

std::vector<double> copy_of(auto view) { return {view.span().begin(), view.span().end()}; }

/// What f() throws on another thread; empty if it throws nothing.
template <class F>
std::string message_elsewhere(F f) {
  std::string message;
  std::thread([&] { message = message_of<argument_error>(f); }).join();
  return message;
}

}  // namespace

TEST_CASE("every call that finds the model in a call of another thread is an error") {
  SingleRank ranks;
  Net<> model(ranks, Seed{1});
  Net<> alone(ranks, Seed{1});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
  const auto x = tensor(4, 7), target = tensor(4, 5, 3);
  const auto dy = tensor(4, 5, 2);
  const auto weight = model.gather("0.weight");
  const std::vector<std::function<void()>> calls{
      [&] { model.evaluate(x.view()); },
      [&] { model.forward(x.view()); },
      [&] { model.backward(dy.view()); },
      [&] { model.settle_gradients(); },
      [&] { model.gradients(); },
      [&] { model.find_non_finite(x.view()); },
      [&] { model.layer_losses(); },
      [&] { model.next_step(); },
      [&] { model.discard_step(); },
      [&] { model.set_step(3); },
      [&] { model.gather("0.weight"); },
      [&] { model.gather_gradient("0.weight"); },
      [&] { model.set("0.weight", weight.view()); },
      [&] { model.visit_parameters([](auto&) {}); },
      [&] { model.visit_stored([](auto&) {}); },
      [&] { model.visit_buffers([](auto&) {}); },
      [&] { optimizer.update_values([](std::size_t, const auto&) {}); },
      [&] { train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(i);
    std::string message;
    inside = [&] { message = message_elsewhere(calls[i]); };
    const auto y = copy_of(model.evaluate(x.view()));
    CHECK(contains(message, "while it is in a call of another thread; that call goes on"));
    CHECK(y == copy_of(alone.evaluate(x.view())));
    CHECK(model.step() == 1);
  }
  // The same in backward and in an optimizer's step.
  std::string in_backward;
  model.forward(x.view());
  inside = [&] { in_backward = message_elsewhere(calls[0]); };
  model.backward(dy.view());
  CHECK(contains(in_backward, "Mlp: a thread calls this model"));
  CHECK(contains(in_backward, "a model of its own"));
}

TEST_CASE("a thread may use a model in a call of its own, and after one that failed") {
  SingleRank ranks;
  Net<> model(ranks, Seed{1});
  const auto x = tensor(4, 7), bad = tensor(4, 6);
  std::size_t seen = 0;
  model.visit_parameters(
      [&](auto& parameter) { seen += model.gather(parameter.name).span().size(); });
  CHECK(seen == 7 * 6 + 6 + 6 * 5 + 5);
  CHECK_THROWS_AS(model.evaluate(bad.view()), shape_error);
  CHECK(message_elsewhere([&] { model.evaluate(x.view()); }) == "");  // another one, later
}

TEST_CASE("threads that call at random: each call is done or an error, and the model stays whole") {
  SingleRank ranks;
  Net<ForwardOnly> model(ranks, Seed{1});
  const auto x = tensor(4, 7);
  const auto right = copy_of(model.evaluate(x.view()));
  std::atomic<int> answers = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        try {
          model.evaluate(x.view());
          ++answers;
        } catch (const argument_error&) {
          ++refused;
        }
      }
    });
  }
  for (std::thread& one : threads) one.join();
  CHECK(answers + refused == 8000);
  CHECK(copy_of(model.evaluate(x.view())) == right);
}
