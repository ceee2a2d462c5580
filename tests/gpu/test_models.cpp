// Models split over thread ranks that share a device (under nvcc a GPU) learn what one rank of the
// host learns in double from the same weights and batches: layers, losses, steps and collectives,
// with shards that are uneven and empty.

#include <doctest/doctest.h>

#include <cstddef>

#include "gpu/learned.hpp"
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
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "support/seed.hpp"

using namespace shardwise;
using namespace testing::learned;

namespace {

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
