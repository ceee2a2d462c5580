// Convolutions of every split allocate nothing after the second training step, and the network
// learns the same at every number of ranks. Counts every operator new of the thread, which is why
// this is a program of its own.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "ranks/conv_network.hpp"
#include "ranks/training_losses.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/train/sgd.hpp"
#include "support/count_allocations.hpp"
#include "support/ranks.hpp"

using namespace shardwise;

namespace {

/// The loss of each of six steps.
std::vector<double> train(testing::Ranks& ranks) {
  std::size_t before = 0;
  return testing::training_losses<testing::ConvNetwork, double, Reference>(
      ranks, testing::images, Sgd{.learning_rate = 0.3, .momentum = 0.5}, 6, [&](std::size_t step) {
        if (step == 1) before = testing::allocations;
        if (step == 5) CHECK(testing::allocations - before == 0);
      });
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
