#pragma once
// What most tests make of the library's templates. Clang makes code of it once and optimises it
// (tests/CMakeLists.txt), so that tests compile and run faster. Nothing here is called.

#include <cstdint>

#include "shardwise/shardwise.hpp"

namespace compiled_once {

using namespace shardwise;

using Perceptron = Sequential<ColumnParallelLinear<1, 1>, Relu, RowParallelLinear<1, 1>>;
using Convolutions = Sequential<Conv2d<split::none, 1, 1, kernel(1)>, BatchNorm<1>, MaxPool2d<1>,
                                GlobalAveragePool, Flatten>;
using Heads = HeadLinear<1, 1, 1>;
using Attention = Join<Attend<>, Heads, Heads, Heads>;

template <class Network, class T, class Target, class Loss, class C>
void train(C& ranks, const Shape& input, const Shape& target, Loss loss) {
  const Tensor<T, Invariant> x(input, place_of(ranks));
  const Tensor<Target, Invariant> t(target, place_of(ranks));
  Model<Network, Context<T, Reference, C>> model(ranks, Seed{1});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
  train_step(model, x, t, loss, optimizer);
}

template <class T, class C>
void train_perceptron(C& ranks) {
  train<Perceptron, T, std::int32_t>(ranks, {{Axis::batch, 1}, {Axis::feature, 1}},
                                     {{Axis::batch, 1}}, CrossEntropy{});
}

inline void train_all() {
  SingleRank one;
  train_perceptron<double>(one);
  train_perceptron<float>(one);
  run_ranks(1, [](ThreadCommunicator& ranks) {
    train_perceptron<double>(ranks);
    train_perceptron<float>(ranks);
    CountingCommunicator counted(ranks);
    train_perceptron<double>(counted);
    train<Convolutions, double, double>(
        ranks, {{Axis::batch, 1}, {Axis::channel, 1}, {Axis::height, 1}, {Axis::width, 1}},
        {{Axis::batch, 1}, {Axis::feature, 1}}, MeanSquaredError{});
    const Shape rows{{Axis::batch, 1}, {Axis::sequence, 1}, {Axis::feature, 1}};
    train<Attention, double, double>(ranks, rows, rows, MeanSquaredError{});
  });
}

}  // namespace compiled_once
