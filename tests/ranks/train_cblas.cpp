// Models that compute their products with a CBLAS, at 1 to 4 ranks, against plain loops on one.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/backend/cblas/cblas.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/largest_difference.hpp"
#include "support/ranks.hpp"
#include "witness/formula.hpp"

using namespace shardwise;

namespace {

struct Block
    : Residual<
          Sequential<LayerNorm<9>, ColumnParallelLinear<9, 21>, Gelu, RowParallelLinear<21, 9>>> {};
struct Net : Sequential<Block, RowParallelLinear<9, 5>> {};

/// The losses of 20 steps, as every rank sees them.
template <class B, Communicator C>
std::vector<double> losses(C& ranks) {
  Model<Net, Context<double, B, C>> model(ranks, Seed{1});
  Tensor<double, Invariant> x({{Axis::batch, 7}, {Axis::feature, 9}}, place_of(ranks));
  Tensor<double, Invariant> target({{Axis::batch, 7}, {Axis::feature, 5}}, place_of(ranks));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = witness::made(1, static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < target.size(); ++i)
    target[i] = witness::made(2, static_cast<std::int64_t>(i));
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1, .momentum = 0.9});
  std::vector<double> found;
  for (int step = 0; step < 20; ++step)
    found.push_back(train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer));
  return found;
}

}  // namespace

TEST_CASE("a model trains on a CBLAS in double as it does on plain loops") {
  SingleRank alone;
  const auto expected = losses<Reference>(alone);
  CHECK(expected.back() < expected.front() / 4);
  for (const int ranks : testing::rank_counts({1, 2, 3, 4})) {
    testing::run_on_ranks(ranks, [&](testing::Ranks& c) {
      const auto found = losses<Cblas>(c);
      CAPTURE(ranks);
      // Sums of 21 numbers near 1 in another order, over 20 steps.
      CHECK(testing::largest_difference(found, expected) < 1e-12);
    });
  }
}
