// A network of all that stands around convolutions, on images of which ranks have rows: the same at
// 1 to 8 ranks, and nothing allocated after the second step.

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/count_allocations.hpp"

using namespace shardwise;

namespace {

using Rows = Sharded<Axis::height>;

struct Network
    : Sequential<
          BatchNorm<3>, Relu, MaxPool2d<pool(3, {.stride = 1, .padding = 1})>, ChannelDropout<1, 4>,
          AveragePool2d<pool({3, 2}, {.stride = 2, .padding = {1, 0}})>, BatchNorm<3, Affine::none>,
          GlobalAveragePool, Flatten, Linear<split::none, 3, 2>> {};

const Shape images{{Axis::batch, 4}, {Axis::channel, 3}, {Axis::height, 11}, {Axis::width, 6}};

const LayerChecks rounded{.exact = false, .bound = 1e-11, .gradients = 5};

}  // namespace

TEST_CASE("a network over rows of images") {
  testing::check_on_ranks<Rows, Invariant>(Network{}, images, rounded);
}

TEST_CASE("a network that ends in whole planes of a channel each") {
  struct Split : Sequential<MaxPool2d<pool(3, {.stride = 2})>, Flatten, BatchNorm<30>,
                            RowParallelLinear<30, 4>> {};
  testing::check_on_ranks<Rows, Invariant>(Split{}, images, rounded);
}

TEST_CASE("nothing is allocated after the second step") {
  for (const int size : testing::rank_counts({1, 3})) {
    testing::run_on_ranks(size, [](testing::Ranks& ranks) {
      Model<Network, Context<float, Reference, testing::Ranks>, Ends<Rows, Invariant>> model(
          Network{}, ranks, Seed{1}, images);
      const Tensor<float, Rows> x(images, place_of(ranks));
      const Tensor<float, Invariant> target({{Axis::batch, 4}, {Axis::feature, 2}},
                                            place_of(ranks));
      Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
      CHECK(testing::allocated_after_second([&] {
              train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer);
              model.evaluate(x.view());
            }) == 0);
    });
  }
}
