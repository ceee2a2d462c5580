// The norm of all gradients, and what is cut down to it: PyTorch's, whatever the number of ranks.

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/messages.hpp"
#include "unit/train/rows.hpp"
#include "witness/values.hpp"

using namespace testing;

namespace {

/// Split weights and a split bias, and a bias that all ranks have alike.
struct Mlp : Sequential<ColumnParallelLinear<9, 13>, Gelu, RowParallelLinear<13, 10>> {};

/// All parameters alike or, between ends that are split by batch, all owing.
struct Whole : Sequential<Linear<split::none, 9, 13>, Gelu, Linear<split::none, 13, 10>> {};

/// Between ends of which the first is split by batch, parameters of all three kinds: 10 elements
/// that owe a reduction, which do not fill a cache line, split ones, and a last bias that is alike.
struct Mixed : Sequential<Linear<split::none, 9, 1>, ColumnParallelLinear<1, 48>,
                          RowParallelLinear<48, 10>> {};

/// Gives all parameters the gradients of the witness.
template <class M>
void set_gradients(M& model) {
  using G = typename M::gradient_dtype;
  std::int64_t number = 60;
  model.visit_parameters([&](auto& parameter) {
    for_each_global_run(
        parameter.gradient, [&](std::size_t global, std::size_t local, std::size_t length) {
          for (std::size_t i = 0; i < length; ++i) {
            const double element = 3 * witness::made(number, static_cast<std::int64_t>(global + i));
            parameter.gradient[local + i] = static_cast<G>(element);
          }
        });
    ++number;
  });
}

/// Calls f(model, step) for a step whose gradients are those of the witness.
template <class L, class E, class T, class C, class F>
void with_gradients(C& ranks, F&& f, const StepOptions& options = {}) {
  Model<L, Context<T, Reference, C>, E> model(ranks, Seed{1});
  const Shape in{{Axis::batch, 8}, {Axis::feature, 9}};
  const Shape out{in[0], {Axis::feature, 10}};
  const Tensor<T, typename E::offered> x(in, place_of(ranks));
  const Tensor<T, Invariant> target(out, place_of(ranks));
  Optimizer optimizer(model, Sgd{.learning_rate = 0.5});
  Step step(optimizer, 8, options);
  step.add(x.view(), target.view(), MeanSquaredError{});
  model.settle_gradients();
  set_gradients(model);
  f(model, step);
  CHECK(optimizer.steps() == 0);
}

template <class L, class E, class T, class C>
void clips(C& ranks, double bound) {
  const auto check = [&](Norm norm, const std::string& name) {
    const witness::Values theirs("training/clipping/" + name);
    with_gradients<L, E, T>(ranks, [&](auto& model, auto&) {
      const double before = clip_gradients(model, 1.5, norm);
      CHECK(std::abs(before / theirs.number("norm") - 1) <= bound);
      for (const char* parameter : {"0.weight", "2.bias"}) {
        const auto gradient = model.gather_gradient(parameter);
        CHECK(largest_difference(gradient.view().span(), theirs[parameter]) <= bound);
      }
    });
  };
  check(Norm::euclidean, "euclidean");
  check(Norm::infinity, "infinity");
}

using Ends_ = Ends<Invariant, Invariant>;

}  // namespace

TEST_CASE("norms and clipped gradients are PyTorch's, whichever way the ranks hold parameters") {
  SingleRank alone;
  clips<Mlp, Ends_, double>(alone, 1e-14);
  for (const int size : {1, 2, 3, 8}) {
    CAPTURE(size);
    run_ranks(size, [](ThreadCommunicator& ranks) {
      clips<Mlp, Ends_, double>(ranks, 1e-14);
      clips<Mlp, Ends_, float>(ranks, 1e-6);
      clips<Whole, Ends_, double>(ranks, 1e-14);
      clips<Whole, Ends<Batch, Batch>, double>(ranks, 1e-14);
    });
  }
}

TEST_CASE(
    "gradients of all three kinds count once each, whatever lies in front of the split ones") {
  double squares = 0;
  double largest = 0;
  std::int64_t number = 60;
  for (const int size : {9, 1, 48, 48, 480, 10}) {  // parameters in model order
    for (int i = 0; i < size; ++i) {
      const double gradient = 3 * witness::made(number, i);
      squares += gradient * gradient;
      largest = std::max(largest, std::abs(gradient));
    }
    ++number;
  }
  for (const int size : {1, 2, 3, 8}) {
    CAPTURE(size);
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      with_gradients<Mixed, Ends<Batch, Invariant>, double>(ranks, [&](auto& model, auto&) {
        const auto& parameters = model.run().parameters;
        CHECK(parameters.owing().size() == 10);
        CHECK(!parameters.split().empty());
        CHECK(std::abs(gradient_norm(model) / std::sqrt(squares) - 1) <= 1e-14);
        CHECK(gradient_norm(model, Norm::infinity) == largest);
      });
    });
  }
}

TEST_CASE("every rank gets the same bits") {
  std::mutex mutex;
  std::set<std::uint64_t> found;
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    with_gradients<Mlp, Ends_, double>(ranks, [&](auto& model, auto&) {
      const double norm = gradient_norm(model);
      const std::scoped_lock lock(mutex);
      found.insert(std::bit_cast<std::uint64_t>(norm));
    });
  });
  CHECK(found.size() == 1);
}

TEST_CASE("gradients below the norm stay as they are, bit by bit") {
  SingleRank alone;
  with_gradients<Mlp, Ends_, double>(alone, [](auto& model, auto&) {
    const std::vector<double> before(model.gradients().begin(), model.gradients().end());
    clip_gradients(model, 1e3);
    CHECK(std::vector<double>(model.gradients().begin(), model.gradients().end()) == before);
  });
}

TEST_CASE("steps that clip are PyTorch's") {
  const witness::Values theirs("training/clipping/steps");
  const auto train = [&](auto& ranks, auto architecture) {
    using C = std::remove_reference_t<decltype(ranks)>;
    Model<decltype(architecture), Context<double, Reference, C>> model(ranks, Seed{1});
    const Place place = place_of(ranks);
    const Shape in{{Axis::batch, 6}, {Axis::feature, 7}};
    const Shape out{in[0], {Axis::feature, 5}};
    const Shape weight{{Axis::output, 5}, {Axis::input, 7}};
    model.set("weight", tensor_of<double>(weight, place, made(64, 35)).view());
    model.set("bias", tensor_of<double>(Shape{weight[0]}, place, made(65, 5)).view());
    const auto x = tensor_of<double>(in, place, made(66, 42));
    const auto target = tensor_of<double>(out, place, made(67, 30));
    Optimizer optimizer(model, Sgd{.learning_rate = 0.5});
    const StepOptions options{.clip_norm = 0.25};
    const auto losses = theirs["losses"];
    const auto norms = theirs["norms"];
    for (std::size_t i = 0; i < 5; ++i) {
      Step step(optimizer, 6, options);
      const double loss = step.add(x.view(), target.view(), MeanSquaredError{});
      const StepEnd end = step.finish();
      CHECK(std::abs(loss - losses[i]) < 1e-14);
      CHECK(std::abs(end.norm.value() - norms[i]) < 1e-14);
      CHECK(!end.skipped);
    }
    for (const char* name : {"weight", "bias"}) {
      CHECK(largest_difference(model.gather(name).view().span(), theirs[name]) < 1e-14);
    }
  };
  SingleRank alone;
  train(alone, Linear<split::none, 7, 5>{});
  for (const int size : {2, 4}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      train(ranks, ColumnParallelLinear<7, 5>{});
      train(ranks, RowParallelLinear<7, 5>{});
    });
  }
}

TEST_CASE("a norm that is no number stops the step on every rank and changes nothing") {
  run_ranks(3, [](ThreadCommunicator& ranks) {
    for (const Norm norm : {Norm::euclidean, Norm::infinity}) {
      const auto stops = [&](auto& model, auto& step) {
        const std::vector<double> before(model.values().begin(), model.values().end());
        model.visit_parameters([&](auto& parameter) {  // one element on the last rank alone
          if (parameter.name == "2.weight" && ranks.rank() == 2)
            parameter.gradient[1] = std::numeric_limits<double>::quiet_NaN();
        });
        const std::string said = message_of([&] { step.finish(); });
        CHECK(contains(said, "the norm of all gradients is"));
        CHECK(std::vector<double>(model.values().begin(), model.values().end()) == before);
        CHECK(model.step() == 1);
        CHECK(model.run().step.gradients == GradientState::none);
      };
      with_gradients<Mlp, Ends_, double>(ranks, stops, {.clip_norm = 1.0, .norm = norm});
    }
  });
}

TEST_CASE("norms to cut down to that make no sense are refused, and so is a step without a batch") {
  SingleRank alone;
  with_gradients<Mlp, Ends_, double>(alone, [](auto& model, auto&) {
    for (const double wrong : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
      CHECK(
          contains(message_of([&] { clip_gradients(model, wrong); }), "must be a number above 0"));
    }
    CHECK(model.run().step.gradients == GradientState::whole);
    model.discard_step();
    CHECK(contains(message_of([&] { gradient_norm(model); }), "gradients of at least one batch"));
  });
}
