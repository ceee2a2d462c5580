// Models that compute their products with a CBLAS, at 1 to 4 ranks, against plain loops on one.

#include <doctest/doctest.h>

#include <cstddef>

#include "ranks/training_losses.hpp"
#include "shardwise/backend/cblas/cblas.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/train/sgd.hpp"
#include "support/largest_difference.hpp"
#include "support/ranks.hpp"

using namespace shardwise;

namespace {

struct Block
    : Residual<
          Sequential<LayerNorm<9>, ColumnParallelLinear<9, 21>, Gelu, RowParallelLinear<21, 9>>> {};
struct Net : Sequential<Block, RowParallelLinear<9, 5>> {};

/// The losses of 20 steps, as every rank sees them.
template <class Backend, class C>
auto losses(C& ranks) {
  return testing::training_losses<Net, double, Backend>(
      ranks, {{Axis::batch, 7}, {Axis::feature, 9}}, Sgd{.learning_rate = 0.3, .momentum = 0.9}, 20,
      [](std::size_t) {});
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
