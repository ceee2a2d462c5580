// Convolutions of every split allocate nothing after the second training step, and the network
// learns the same at every number of ranks. Counts every operator new of the thread, which is why
// this is a program of its own.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/count_allocations.hpp"
#include "support/ranks.hpp"
#include "witness/formula.hpp"

using namespace shardwise;

namespace {

constexpr Kernel padded = kernel(3, {.padding = 1});

struct Network
    : Sequential<Conv2d<split::height, 2, 5, padded>, Relu, Conv2d<split::output, 5, 6, padded>,
                 Relu, Conv2d<split::group, 6, 12, kernel(3, {.stride = 2, .groups = 6})>, Gelu,
                 Conv2d<split::input, 12, 7, 2>, Relu, To<Sharded<Axis::batch>>,
                 Conv2d<split::none, 7, 5, 1>, Relu, Flatten, RowParallelLinear<5 * 2 * 2, 4>> {};

const Shape images{{Axis::batch, 6}, {Axis::channel, 2}, {Axis::height, 7}, {Axis::width, 8}};

/// The loss of each of six steps.
std::vector<double> train(testing::Ranks& ranks) {
  Model<Network, Context<double, Reference, testing::Ranks>> model(Network{}, ranks, Seed{1},
                                                                   images);
  Tensor<double, Invariant> x(images, place_of(ranks));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = witness::made(1, static_cast<std::int64_t>(i));
  Tensor<std::int32_t, Invariant> labels(Shape{images[0]}, place_of(ranks));
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = witness::made_label(static_cast<std::int64_t>(i), 4);
  Optimizer optimizer(model, Sgd{.learning_rate = 0.3, .momentum = 0.5});
  std::vector<double> losses(6);
  std::size_t before = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    if (step == 2) before = testing::allocations;
    losses[step] =
        static_cast<double>(train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer));
  }
  CHECK(testing::allocations - before == 0);
  return losses;
}

}  // namespace

TEST_CASE("convolutions of every split learn alike and allocate nothing") {
  std::vector<double> alone;
  testing::run_on_ranks(1, [&](testing::Ranks& ranks) { alone = train(ranks); });
  CHECK(alone.back() < 0.98 * alone.front());
  for (const int size : testing::rank_counts({2, 3, 4, 8})) {
    CAPTURE(size);
    testing::run_on_ranks(size, [&](testing::Ranks& ranks) {
      const std::vector<double> losses = train(ranks);
      for (std::size_t step = 0; step < losses.size(); ++step)
        CHECK(std::abs(losses[step] / alone[step] - 1) < 1e-12);
    });
  }
}
