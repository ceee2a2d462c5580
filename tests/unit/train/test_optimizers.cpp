// Optimisers against PyTorch over ten steps, in every dtype, and the options that they refuse.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/train/adam.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/lion.hpp"
#include "shardwise/train/rms_prop.hpp"
#include "shardwise/train/sgd.hpp"
#include "support/messages.hpp"
#include "witness/formula.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using testing::check_mentions;

namespace {

/// Ten steps of six parameters, which are the weight of one column-parallel layer.
template <Real T, Communicator C, class Rule>
void follows(C& ranks, const Rule& rule, std::span<const double> expected, double bound) {
  REQUIRE(expected.size() == 60);
  using A = accumulate_t<T>;
  Model<Linear<split::output, 1, 6, false>, Context<T, Reference, C>> model(ranks, Seed{1});
  const Interval mine = block_of({Axis::output, 6}, place_of(ranks));
  for (std::size_t i = 0; i < mine.size; ++i) {
    const auto at = static_cast<std::int64_t>(mine.offset + i);
    model.values()[i] = static_cast<T>(static_cast<A>(witness::made(9, at)));
  }
  Optimizer optimizer(model, rule);
  for (std::size_t step = 0; step < 10; ++step) {
    for (std::size_t i = 0; i < mine.size; ++i) {
      const auto at = static_cast<std::int64_t>(6 * step + mine.offset + i);
      model.gradients()[i] = static_cast<T>(static_cast<A>(witness::made(10, at)));
    }
    model.gradients_written();
    optimizer.step();
    for (std::size_t i = 0; i < mine.size; ++i) {
      const auto value = static_cast<double>(static_cast<A>(model.values()[i]));
      INFO("step " << step << ", element " << mine.offset + i);
      CHECK(std::abs(value - expected[6 * step + mine.offset + i]) <= bound);
    }
  }
  CHECK(optimizer.steps() == 10);
}

/// What PyTorch's optimisers of one kind did, read once.
const std::vector<witness::Values>& theirs(const std::string& kind) {
  static const auto all = [] {
    std::map<std::string, std::vector<witness::Values>> found;
    for (const char* name : {"sgd", "adamw", "adam", "rmsprop", "lion"})
      found[name] = witness::Values(std::string("training/optimisers/") + name).groups();
    return found;
  }();
  return all.at(kind);
}

/// Ten steps by each rule of `kind` in the witness, which make(its numbers) gives.
template <Real T, Communicator C, class Make>
void follow(C& ranks, const std::string& kind, double bound, Make make) {
  for (const witness::Values& w : theirs(kind)) {
    CAPTURE(w.path());
    follows<T>(ranks, make(w), w["values"], bound);
  }
}

template <class Rule>
Rule adam_of(const witness::Values& w) {
  return {w.number("rate"), w.number("beta1"), w.number("beta2"), w.number("epsilon"),
          w.number("weight_decay")};
}

/// In two-byte dtypes start, gradients and each of ten steps are rounded, to half an eps of 1.
template <Real T, Communicator C>
void all_follow(C& ranks, double bound) {
  using W = witness::Values;
  follow<T>(ranks, "sgd", bound, [](const W& w) {
    return Sgd{.learning_rate = w.number("rate"),
               .momentum = w.number("momentum"),
               .nesterov = w.number("nesterov") != 0,
               .weight_decay = w.number("weight_decay"),
               .dampening = w.number("dampening")};
  });
  follow<T>(ranks, "adamw", bound, adam_of<AdamW>);
  follow<T>(ranks, "adam", bound, adam_of<Adam>);
  follow<T>(ranks, "rmsprop", bound, [](const W& w) {
    return RmsProp{.learning_rate = w.number("lr"),
                   .alpha = w.number("alpha"),
                   .epsilon = w.number("eps"),
                   .momentum = w.number("momentum"),
                   .centered = w.number("centered") != 0,
                   .weight_decay = w.number("weight_decay")};
  });
  follow<T>(ranks, "lion", bound, [](const W& w) {
    return Lion{w.number("rate"), w.number("beta1"), w.number("beta2"), w.number("weight_decay")};
  });
}

using One = Model<Linear<split::none, 1, 1>, Context<double, Reference, SingleRank>>;

template <class Rule>
std::string refusal(const Rule& rule) {
  SingleRank alone;
  One model(alone, Seed{1});
  return testing::message_of<argument_error>([&] { Optimizer optimizer(model, rule); });
}

}  // namespace

TEST_CASE("ten steps give PyTorch's parameters") {
  SingleRank alone;
  all_follow<double>(alone, 1e-15);
  all_follow<float>(alone, 2e-6);
  all_follow<bf16>(alone, 0.05);
  all_follow<fp16>(alone, 0.008);
  for (int size = 1; size <= 8; ++size) {
    run_ranks(size, [](ThreadCommunicator& ranks) { all_follow<double>(ranks, 1e-15); });
  }
}

TEST_CASE("default options are PyTorch's, and those of Lion's authors") {
  SingleRank alone;
  const auto follows_first = [&](const auto& rule, const std::string& kind) {
    CAPTURE(kind);
    follows<double>(alone, rule, theirs(kind)[0]["values"], 1e-15);
  };
  follows_first(AdamW{}, "adamw");
  follows_first(Adam{}, "adam");
  follows_first(RmsProp{}, "rmsprop");
  follows_first(Lion{}, "lion");
}

TEST_CASE("the learning rate may change between steps") {
  SingleRank alone;
  One model(alone, Seed{1});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.5});
  model.values()[0] = 1;
  model.gradients()[0] = 1;
  model.gradients_written();
  optimizer.step();
  CHECK(model.values()[0] == 0.5);
  optimizer.set_learning_rate(0.25);
  CHECK(optimizer.rule().learning_rate == 0.25);
  model.gradients_written();
  optimizer.step();
  CHECK(model.values()[0] == 0.25);
  CHECK_THROWS_AS(optimizer.set_learning_rate(-1), argument_error);
  CHECK_THROWS_AS(optimizer.set_learning_rate(std::nan("")), argument_error);
  CHECK(optimizer.rule().learning_rate == 0.25);
}

TEST_CASE("options that make no sense are refused by name") {
  CHECK(refusal(Sgd{}) == "");
  CHECK(refusal(AdamW{}) == "");
  check_mentions(refusal(Sgd{.learning_rate = -0.1}), {"learning_rate is -0.1"});
  check_mentions(refusal(Sgd{.momentum = -1}), {"momentum"});
  check_mentions(refusal(Sgd{.weight_decay = std::nan("")}), {"weight_decay"});
  check_mentions(refusal(Sgd{.nesterov = true}), {"nesterov"});
  check_mentions(refusal(AdamW{.beta1 = 1}), {"beta1"});
  check_mentions(refusal(AdamW{.beta2 = -0.1}), {"beta2"});
  check_mentions(refusal(AdamW{.epsilon = -1}), {"epsilon"});
  const auto refused = [](const auto& rule, const std::string& what) {
    CHECK(testing::contains(refusal(rule), what));
  };
  const double none = std::nan("");
  refused(Sgd{.momentum = 0.9, .nesterov = true, .dampening = 0.1}, "nesterov has no dampening");
  refused(Sgd{.dampening = -0.5}, "Sgd: dampening is -0.5");
  refused(Adam{.weight_decay = none}, "Adam: weight_decay");
  refused(RmsProp{.alpha = 1}, "RmsProp: alpha is 1");
  refused(RmsProp{.momentum = -1}, "RmsProp: momentum");
  refused(Lion{.beta2 = none}, "Lion: beta2");
  refused(Lion{.learning_rate = -1}, "Lion: learning_rate");
}

// In float 1e-60 is 0.
TEST_CASE("a momentum that the dtype rounds to 0 keeps its moments and its dampening") {
  const auto counts = [](const auto& rule) {
    return rule.template update<float>(1).in_form(
        [&](auto count, const auto&) { return count == rule.moments(); });
  };
  for (const double momentum : {0.0, 1e-60, 0.9}) {
    CAPTURE(momentum);
    CHECK(counts(Sgd{.momentum = momentum}));
    CHECK(counts(RmsProp{.momentum = momentum}));
    CHECK(counts(RmsProp{.momentum = momentum, .centered = true}));
  }

  SingleRank alone;
  Model<Linear<split::none, 1, 1>, Context<float, Reference, SingleRank>> model(alone, Seed{1});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.5, .momentum = 1e-60, .dampening = 0.5});
  model.values()[0] = 1;
  model.gradients()[0] = 1;
  for (const float after : {0.5F, 0.25F}) {
    model.gradients_written();
    optimizer.step();
    CHECK(model.values()[0] == after);
  }
}

// In double s - a² cancels to less than 0 in the 54th step.
TEST_CASE("RMSprop of a gradient that never changes makes no NaN of its variance") {
  SingleRank alone;
  One model(alone, Seed{1});
  Optimizer optimizer(model, RmsProp{.alpha = 0.5, .centered = true});
  for (int step = 0; step < 60; ++step) {
    model.gradients()[0] = 0.7;
    model.gradients_written();
    optimizer.step();
    CHECK(std::isfinite(model.values()[0]));
  }
}

TEST_CASE("Lion keeps a NaN, and leaves what has no gradient") {
  SingleRank alone;
  One model(alone, Seed{1});
  Optimizer optimizer(model, Lion{});
  const double before = model.values()[1];
  model.gradients()[0] = std::nan("");
  model.gradients()[1] = 0;
  model.gradients_written();
  optimizer.step();
  CHECK(std::isnan(model.values()[0]));
  CHECK(model.values()[1] == before);
}

namespace {

/// Parameters of all kinds: split ones, whole ones with a whole gradient, and summands.
struct Several : Sequential<ColumnParallelLinear<3, 5>, RowParallelLinear<5, 4>, RmsNorm<4>,
                            Linear<split::none, 4, 2>> {};

/// One step without gradients: what decays is multiplied by 1 - 0.5 · 0.25.
template <class P, class Rule>
void check_decay(const Rule& rule, bool vectors_decay) {
  for (const int ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    run_ranks(ranks, [&](ThreadCommunicator& group) {
      using Rows = Sharded<Axis::batch>;
      constexpr Shape in{{Axis::batch, 3}, {Axis::feature, 3}};
      Model<Several, Context<P, Reference, ThreadCommunicator>, Ends<Invariant, Rows>> model(
          Several{}, group, Seed{1}, in);
      model.visit_parameters([](auto& p) {
        for (auto& value : p.value.span()) value = 8;
      });
      model.values_changed();
      Optimizer optimizer(model, rule);
      const Tensor<typename decltype(model)::dtype, Invariant> x(in, place_of(group));
      const auto y = model.forward(x.view());
      const Tensor<typename decltype(model)::dtype, Rows> dy(y.global(), place_of(group));
      model.backward(dy.view());
      model.settle_gradients();
      optimizer.end_step();
      model.visit_parameters([&](auto& p) {
        CAPTURE(p.name);
        const bool decays = vectors_decay || p.spec.shape.rank() > 1;
        CHECK(p.spec.decays == (p.spec.shape.rank() > 1));
        for (const auto& value : p.value.span()) CHECK(value == (decays ? 7 : 8));
      });
    });
  }
}

}  // namespace

TEST_CASE("weight decay of chosen parameters leaves out biases and weights of norms") {
  const AdamW adamw{.learning_rate = 0.5, .weight_decay = 0.25, .decay = Decay::chosen};
  check_decay<double>(adamw, false);
  check_decay<Precision<bf16, float>>(adamw, false);
  check_decay<double>(Sgd{.learning_rate = 0.5, .weight_decay = 0.25, .decay = Decay::chosen},
                      false);
  check_decay<double>(Lion{.learning_rate = 0.5, .weight_decay = 0.25, .decay = Decay::chosen},
                      false);
  check_decay<double>(AdamW{.learning_rate = 0.5, .weight_decay = 0.25}, true);
}
