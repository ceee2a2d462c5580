#pragma once
// Models that learn a set of images at some number of ranks, for tests that compare losses.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../../examples/support/fashion_mnist.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/largest_difference.hpp"
#include "support/ranks.hpp"

namespace testing {

/// The losses of `steps` steps on batches of shape `in`, which all ranks must agree on to the last
/// bit.
template <class Architecture, class T, class Backend>
std::vector<double> image_losses(int ranks, const example::ImageSet& images,
                                 const shardwise::Shape& in, const shardwise::Sgd& rule,
                                 std::size_t steps) {
  using namespace shardwise;
  std::vector<std::vector<double>> seen(static_cast<std::size_t>(ranks));
  run_on_ranks(ranks, [&](Ranks& communicator) {
    Model<Architecture, Context<T, Backend, Ranks>> model(Architecture{}, communicator, Seed{1},
                                                          in);
    Optimizer optimizer(model, rule);
    const Place place = place_of(communicator);
    DistributedSampler sampler(images.count, place,
                               {.batch_size = in[0].extent(), .seed = Seed{3}});
    Tensor<T, Invariant> x(in, place);
    Tensor<std::int32_t, Invariant> labels(Shape{in[0]}, place);
    std::vector<double> mine;
    while (mine.size() < steps) {
      copy_batch(images, sampler.next().whole, example::fashion_mnist_normalisation,
                 x.view().span(), labels.view().span());
      mine.push_back(train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer));
    }
    tell(place, mine, [&](int rank, const std::vector<double>& of_rank) {
      seen[static_cast<std::size_t>(rank)] = of_rank;
    });
  });
  for (const auto& of_rank : seen) CHECK(of_rank == seen.front());
  return seen.front();
}

/// The largest relative difference within the first `steps` losses.
inline double largest_relative_difference(std::span<const double> a, std::span<const double> b,
                                          std::size_t steps) {
  Largest largest;
  for (std::size_t i = 0; i < steps; ++i) largest.see(std::abs(a[i] - b[i]) / std::abs(a[i]));
  return largest;
}

}  // namespace testing
