// Training steps that were recorded come to the bits of steps that are called.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/recorded_step.hpp"
#include "shardwise/train/sgd.hpp"

using namespace shardwise;

namespace {

struct Mlp
    : Sequential<ColumnParallelLinear<64, 256>, Relu, Dropout<1, 4>, RowParallelLinear<256, 32>> {};

constexpr std::size_t samples = 16;
constexpr std::size_t classes = 32;
const Shape inputs_shape{{Axis::batch, samples}, {Axis::feature, 64}};
const Shape label_shape{{Axis::batch, samples}};

/// A model on the device, and a batch that changes.
template <class P, class Rule>
struct Learner {
  using M = Model<Mlp, Context<P, Cuda, SingleRank>>;
  using T = typename M::dtype;

  Cuda backend;
  SingleRank alone;
  M model{Mlp{}, alone, Seed{1}, {}, backend};
  Optimizer<Rule, M> optimizer;
  Tensor<T, Invariant> host_x{inputs_shape};
  Tensor<std::int32_t, Invariant> host_labels{label_shape};
  Value<T, Invariant> x = model.to_device(host_x.view());
  Value<std::int32_t, Invariant> labels = model.to_device(host_labels.view());

  explicit Learner(const Rule& rule) : optimizer(model, rule) {}

  void go_to(std::uint64_t step) {
    const RandomStream stream(Seed{3}, data_ordinal, step);
    for (std::size_t i = 0; i < host_x.size(); ++i)
      host_x[i] = static_cast<T>(static_cast<accumulate_t<T>>(stream.uniform(i) - 0.5F));
    for (std::size_t i = 0; i < samples; ++i)
      host_labels[i] = static_cast<std::int32_t>((i * 7 + step) % classes);
    backend.to_device(host_x.data(), host_x.size(), x.writable().data());
    backend.to_device(host_labels.data(), samples, labels.writable().data());
    optimizer.set_learning_rate(0.01 / static_cast<double>(step));
  }

  auto values() {
    const auto there = model.values();
    std::vector<double> numbers(there.size());
    std::vector<typename M::parameter_dtype> here(there.size());
    backend.to_host(there.data(), here.size(), here.data());
    for (std::size_t i = 0; i < here.size(); ++i) numbers[i] = static_cast<double>(here[i]);
    return numbers;
  }
};

template <class P, class Rule>
void ten_launches_are_ten_steps(const Rule& rule, const StepOptions& options = {}) {
  Learner<P, Rule> called(rule);
  Learner<P, Rule> launched(rule);
  RecordedStep recorded(launched.model, launched.optimizer, CrossEntropy{}, launched.x.view(),
                        launched.labels.view(), options);
  for (std::uint64_t step = 1; step <= 10; ++step) {
    called.go_to(step);
    const double loss = train_step(called.model, called.x.view(), called.labels.view(),
                                   CrossEntropy{}, called.optimizer, options);
    launched.go_to(step);
    recorded.launch();
    if (step % 3 == 0) launched.model.evaluate(launched.x.view());
    if (step % 2 == 0) CHECK(recorded.loss() == loss);
  }
  CHECK(launched.values() == called.values());
  CHECK(launched.optimizer.steps() == 10);
}

}  // namespace

TEST_CASE("launches with a schedule, dropout and moments") {
  ten_launches_are_ten_steps<float>(AdamW{});
  ten_launches_are_ten_steps<double>(Sgd{.momentum = 0.9});
  ten_launches_are_ten_steps<Precision<bf16, float>>(AdamW{});
  ten_launches_are_ten_steps<fp16>(Sgd{});
  ten_launches_are_ten_steps<float>(AdamW{}, {.clip_norm = 0.1});
}

TEST_CASE("a loop that trains by launches") {
  Learner<float, AdamW> learner(AdamW{});
  auto& [backend, alone, model, optimizer, host_x, host_labels, x, labels] = learner;
  const auto next_batch = [&learner](int step) { learner.go_to(static_cast<std::uint64_t>(step)); };
  // begin: graph
  RecordedStep recorded(model, optimizer, CrossEntropy{}, x.view(), labels.view());
  for (int step = 1; step <= 100; ++step) {
    next_batch(step);  // to_device, into the memory of x and labels
    optimizer.set_learning_rate(0.01 / step);
    recorded.launch();
    if (step % 10 == 0) std::printf("step %d   loss %.4f\n", step, recorded.loss());
  }
  // end: graph
  CHECK(optimizer.steps() == 100);
}

TEST_CASE("launches that nobody waits for each have numbers of their own") {
  Learner<float, Sgd> t(Sgd{});
  t.go_to(1);
  RecordedStep recorded(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
  for (int i = 0; i < 3; ++i) recorded.launch();
  const auto before = t.values();
  t.optimizer.set_learning_rate(0);
  for (int i = 0; i < 20; ++i) recorded.launch();
  t.optimizer.set_learning_rate(1);  // of no launch
  CHECK(t.values() == before);
}

TEST_CASE("a loss that is no number stops all launches until it is read") {
  Learner<float, AdamW> t(AdamW{});
  t.go_to(1);
  RecordedStep recorded(t.model, t.optimizer, CrossEntropy{}, t.x.view(), t.labels.view());
  for (int i = 0; i < 4; ++i) recorded.launch();
  const auto before = t.values();
  const float none = std::numeric_limits<float>::infinity();
  t.backend.to_device(&none, 1, t.x.writable().data() + 20);
  for (int i = 0; i < 3; ++i) recorded.launch();
  CHECK_THROWS_AS(recorded.loss(), numeric_error);
  CHECK(t.values() == before);
  CHECK(t.optimizer.steps() == 4);
  t.go_to(2);
  recorded.launch();
  CHECK(recorded.loss() > 0);
}
