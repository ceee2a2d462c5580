// Models that compute with oneDNN: what they must notice of their numbers and their weights.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/experts.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"

using namespace shardwise;

namespace {

struct Mlp : Sequential<ColumnParallelLinear<16, 32>, Relu, RowParallelLinear<32, 4>> {};

constexpr ExpertSizes experts{.experts = 2, .chosen = 1, .features = 8, .hidden = 8};

const Shape in{{Axis::batch, 8}, {Axis::feature, 16}};

/// What a step says with the number `spoilt` among the weights of the first layer.
std::string said_of(float spoilt) {
  std::string said;
  try {
    run_ranks(2, [&](ThreadCommunicator& ranks) {
      Model<Mlp, Context<float, OneDnn, ThreadCommunicator>> model(ranks, Seed{1});
      Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
      Tensor<float, Invariant> x(in, place_of(ranks));
      Tensor<std::int32_t, Invariant> labels(Shape{in[0]}, place_of(ranks));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.25F;
      train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer);
      model.visit_parameters([spoilt](auto& parameter) {
        if (parameter.name != "0.weight") return;
        parameter.value[5] = spoilt;
        parameter.value[21] = -spoilt;  // of another output: one of two infinities passes the ReLU
      });
      model.values_changed();
      train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer);
    });
  } catch (const numeric_error& e) {
    said = e.what();
  }
  return said;
}

/// A layer whose outputs all are the sum of 8 weights. Evaluating it packs its weight.
class Packed {
 public:
  Packed() {
    for (float& e : x_.view().span()) e = 1;
    set(1);
    REQUIRE(output() == 8);
  }

  void set(float weight) {
    Tensor<float, Invariant> w({{Axis::output, 8}, {Axis::input, 8}});
    for (float& e : w.view().span()) e = weight;
    model.set("weight", w.view());
  }

  float output() { return model.evaluate(x_.view())[0]; }

  SingleRank alone;
  Model<Linear<split::none, 8, 8, false>, Context<float, OneDnn, SingleRank>> model{alone, Seed{1}};
  Tensor<float, Invariant> x_{Shape{{Axis::batch, 4}, {Axis::feature, 8}}};
};

}  // namespace

TEST_CASE("a step with a NaN or an infinity stops and names the layer") {
  for (const float spoilt : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    CAPTURE(spoilt);
    const std::string said = said_of(spoilt);
    CAPTURE(said);
    CHECK(said.find("Mlp / 0: ColumnParallelLinear<16, 32>") != std::string::npos);
  }
}

TEST_CASE_TEMPLATE("evaluate packs weights, and training never does", L,
                   Linear<split::none, 8, 8, false>, Experts<split::none, experts>) {
  SingleRank alone;
  const Shape rows{{Axis::batch, 4}, {Axis::feature, 8}};
  Model<L, Context<float, OneDnn, SingleRank>> model(L{}, alone, Seed{1}, rows);
  Tensor<float, Invariant> x(rows);
  for (float& e : x.view().span()) e = 1;
  const auto set = [&](float weight) {  // without a word to the model: it sees no new version
    for (float& value : model.values()) value = weight;
  };
  set(1);
  const float small = model.forward(x.view())[0];
  for (int use = 0; use < 9; ++use) CHECK(model.forward(x.view())[0] == small);
  CHECK(model.evaluate(x.view())[0] == small);
  set(2);
  CHECK(model.evaluate(x.view())[0] == small);
  CHECK(model.forward(x.view())[0] > small);
}

TEST_CASE("weights that were set, written to or trained are packed anew") {
  Packed packed;
  packed.set(2);
  CHECK(packed.output() == 16);

  for (float& value : packed.model.values()) value = 3;
  packed.model.values_changed();
  CHECK(packed.output() == 24);

  Optimizer optimizer(packed.model, Sgd{.learning_rate = 1});
  const auto y = packed.model.forward(packed.x_.view());
  Tensor<float, Invariant> dy(y.global());
  for (float& e : dy.view().span()) e = 0.25F;  // 4 rows, so each weight has the gradient 1
  packed.model.backward(View<const float, Invariant>(dy.view()));
  packed.model.settle_gradients();
  optimizer.step();
  packed.model.next_step();
  CHECK(packed.output() == 16);
}
