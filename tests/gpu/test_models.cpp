// Models split over thread ranks that share a device (under nvcc a GPU) learn what one rank of the
// host learns in double from the same weights and batches: layers, losses, steps and collectives,
// with shards that are uneven and empty.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/effort.hpp"
#include "support/far.hpp"
#include "support/largest_difference.hpp"
#include "support/seed.hpp"

using namespace shardwise;
using testing::Far;
using testing::FarMemory;

namespace {

/// How far results may be off, as a share of the largest of them: rounding of some ten layers and
/// three steps. What is forgotten or counted twice is off by more.
template <class T>
constexpr double bound = sizeof(T) == 8            ? 1e-10
                         : sizeof(T) == 4          ? 1e-3
                         : std::is_same_v<T, bf16> ? 0.25
                                                   : 0.04;

using Numbers = std::vector<double>;

template <class T, class L>
Numbers numbers(const Tensor<T, L>& tensor) {
  Numbers result;
  for (std::size_t i = 0; i < tensor.size(); ++i)
    result.push_back(static_cast<double>(static_cast<accumulate_t<T>>(tensor[i])));
  return result;
}

/// Numbers in [-1, 1) as T holds them, the same for every dtype wider than T.
template <class T, class Narrow>
Tensor<T, Invariant> drawn(const Shape& shape, Place place, unsigned seed, std::uint64_t number) {
  Tensor<T, Invariant> tensor(shape, place);
  const RandomStream stream(Seed{seed}, number, 0);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const auto narrow = static_cast<Narrow>(2 * stream.uniform(i) - 1);
    tensor[i] = static_cast<T>(static_cast<accumulate_t<Narrow>>(narrow));
  }
  return tensor;
}

inline Tensor<std::int32_t, Invariant> drawn_labels(std::size_t rows, std::size_t classes,
                                                    Place place, unsigned seed) {
  Tensor<std::int32_t, Invariant> labels({{Axis::batch, rows}}, place);
  const RandomStream stream(Seed{seed}, 99, 0);
  for (std::size_t i = 0; i < rows; ++i)
    labels[i] = static_cast<std::int32_t>(stream.bits(i) % classes);
  return labels;
}

/// The parameters of a model, by name.
using Weights = std::map<std::string, Numbers>;

template <class M>
std::vector<std::string> names_of(M& model) {
  std::vector<std::string> names;
  model.visit_parameters([&](auto& parameter) { names.push_back(parameter.name); });
  return names;
}
template <class M>
Weights weights_of(M& model) {
  Weights weights;
  for (const std::string& name : names_of(model)) weights[name] = numbers(model.gather(name));
  return weights;
}
template <class M>
void set_weights(M& model, const Weights& weights) {
  for (const auto& [name, values] : weights) {
    Tensor<double, Invariant> tensor = model.gather(name);
    for (std::size_t i = 0; i < values.size(); ++i) tensor[i] = values[i];
    model.set(name, tensor.view());
  }
}

/// What came of three steps.
struct Learned {
  Numbers losses;
  Numbers evaluated;
  Weights weights;
};

/// An architecture, its data, and how it learns.
template <class Net, class LossOf, class RuleOf, class Out = Invariant>
struct Problem {
  Shape in;
  std::size_t classes;
  unsigned seed;

  template <class T, class B, class C>
  using ModelOf = Model<Net, Context<T, B, C>, Ends<Invariant, Out>, TrainWithInputGradient>;

  template <class Narrow, class T, class B, class C>
  Learned learn(ModelOf<T, B, C>& model, Place place) const {
    const Shape out{in[0], {Axis::feature, classes}};
    Learned learned;
    Optimizer optimizer(model, RuleOf::rule());
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto x = drawn<T, Narrow>(in, place, seed, 2 * step);
      const auto target = drawn<T, Narrow>(out, place, seed, 2 * step + 1);
      const auto labels = drawn_labels(in[0].extent(), classes, place, seed);
      const auto there = model.to_device(x.view());
      if constexpr (LossOf::takes_labels) {
        const auto given = model.to_device(labels.view());
        learned.losses.push_back(
            train_step(model, there.view(), given.view(), LossOf::loss(), optimizer));
      } else {
        const auto given = model.to_device(target.view());
        learned.losses.push_back(
            train_step(model, there.view(), given.view(), LossOf::loss(), optimizer));
      }
    }
    learned.weights = weights_of(model);
    if constexpr (std::same_as<Out, Invariant>) {
      const auto x = drawn<T, Narrow>(in, place, seed, 100);
      const auto there = model.to_device(x.view());
      learned.evaluated = numbers(model.to_host(model.evaluate(there.view())));
    }
    return learned;
  }

  /// Of the first rank; `begun` are the weights that all began with.
  template <class T>
  Learned on_ranks(int ranks, Weights& begun) const {
    using Group = DeviceThreadCommunicator<Far>;
    const auto memory = std::make_shared<FarMemory>();
    Learned result;
    run_ranks(ranks, [&](ThreadCommunicator& threads) {
      Far backend(memory);
      Group group(threads, backend);
      ModelOf<T, Far, Group> model(Net{}, group, Seed{seed}, in, backend);
      const Weights before = weights_of(model);
      Learned learned = learn<T, T, Far, Group>(model, place_of(group));
      if (threads.rank() == 0) begun = before, result = std::move(learned);
      threads.barrier();  // peers read this rank's memory until here
    });
    return result;
  }

  template <class Narrow>
  Learned in_double(const Weights& begun) const {
    Reference backend;
    SingleRank alone;
    ModelOf<double, Reference, SingleRank> model(Net{}, alone, Seed{seed}, in, backend);
    set_weights(model, begun);
    return learn<Narrow, double, Reference, SingleRank>(model, {});
  }
};

/// The largest difference as a share of the largest number, but of 0.05 if all are smaller: a bias
/// that begins at zero may have gradients that cancel but for their rounding.
double difference(const Numbers& found, const Numbers& expected) {
  testing::Largest largest;
  largest.see(0.05);
  for (const double number : expected) largest.see(std::abs(number));
  return testing::largest_difference(found, expected) / largest;
}

template <class T, class P>
void check(const P& problem) {
  MESSAGE("SHARDWISE_TEST_SEED=" << problem.seed);
  for (const int ranks : testing::at_ranks({1, 2, 3, 4, 8})) {
    CAPTURE(ranks);
    Weights begun;
    const Learned found = problem.template on_ranks<T>(ranks, begun);
    const Learned expected = problem.template in_double<T>(begun);
    CHECK(difference(found.losses, expected.losses) <= bound<T>);
    CHECK(difference(found.evaluated, expected.evaluated) <= bound<T>);
    REQUIRE(found.weights.size() == expected.weights.size());
    for (const auto& weight : expected.weights) {
      CAPTURE(weight.first);
      CHECK(difference(found.weights.at(weight.first), weight.second) <= bound<T>);
    }
  }
}

struct ByLabels {
  static constexpr bool takes_labels = true;
  static CrossEntropy loss() { return {0.1}; }
};
struct ByTargets {
  static constexpr bool takes_labels = false;
  static MeanSquaredError loss() { return {}; }
};
struct BySgd {
  static Sgd rule() { return {.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01}; }
};
/// A large epsilon, so that gradients that are nothing but rounding move no weight.
struct ByAdamW {
  static AdamW rule() { return {.learning_rate = 0.02, .epsilon = 0.1}; }
};

struct Block : Sequential<ColumnParallelLinear<10, 6>, Silu, RowParallelLinear<6, 10>> {};
struct Perceptron
    : Sequential<ColumnParallelLinear<9, 13>, Gelu, Dropout<1, 4>, RowParallelLinear<13, 10>,
                 LayerNorm<10>, Residual<Block>, RmsNorm<10>, Tanh, ColumnParallelLinear<10, 16>,
                 GeluTanh, RowParallelLinear<16, 5>> {};
struct Classifier
    : Sequential<ColumnParallelLinear<9, 6>, Sigmoid, To<Invariant>, ColumnParallelLinear<6, 5>> {};
/// A template, since nvcc 13.0 cannot name the windows of a network that is none.
template <std::size_t Channels>
struct NetworkOf
    : Sequential<Conv2d<split::height, Channels, 5, kernel(3, {.padding = 1})>, Relu, MaxPool2d<2>,
                 To<Invariant>, Conv2d<split::output, 5, 6, kernel(3, {.padding = 1})>,
                 BatchNorm<6>, Relu, Conv2d<split::input, 6, 3, kernel(2)>, AveragePool2d<2>,
                 To<Invariant>, ChannelDropout<1, 4>, Flatten, ColumnParallelLinear<12, 7>, Relu,
                 RowParallelLinear<7, 4>> {};
using Network = NetworkOf<2>;

const Shape rows{{Axis::batch, 11}, {Axis::feature, 9}};
const Shape images{{Axis::batch, 6}, {Axis::channel, 2}, {Axis::height, 10}, {Axis::width, 10}};

}  // namespace

TEST_CASE_TEMPLATE("perceptrons, by squares and AdamW", T, float, double, bf16, fp16) {
  check<T>(Problem<Perceptron, ByTargets, ByAdamW>{rows, 5, testing::seed()});
}

TEST_CASE_TEMPLATE("classes over the ranks, by cross-entropy and SGD", T, float, bf16) {
  using Feature = Sharded<Axis::feature>;
  check<T>(Problem<Classifier, ByLabels, BySgd, Feature>{rows, 5, testing::seed()});
}

TEST_CASE_TEMPLATE("images, by cross-entropy and SGD", T, float, double, bf16, fp16) {
  check<T>(Problem<Network, ByLabels, BySgd>{images, 4, testing::seed()});
}
