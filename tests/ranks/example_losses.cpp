// The perceptron of example 02 learns alike over any number of ranks; and this test would notice if
// it did not, since it also trains one with a known bug.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <vector>

#include "../../examples/support/synthetic_images.hpp"
#include "ranks/image_losses.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"

using namespace shardwise;
using testing::largest_relative_difference;

namespace {

/// A bias divided by the ranks and added by each of them: the value is right, the gradient is not.
template <std::size_t In, std::size_t Out>
struct RowWithDividedBias : RowParallelLinear<In, Out> {
  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, X x, DY dy, DX dx) const {
    RowParallelLinear<In, Out>::backward(frame, x, dy, dx);
    using T = typename Frame::dtype;
    const auto gradient = std::get<1>(frame.gradients());
    for (T& g : gradient.span()) g /= static_cast<T>(gradient.place().size);
  }
};

template <std::size_t Hidden>
struct Mlp : Sequential<ColumnParallelLinear<784, Hidden>, Relu, RowParallelLinear<Hidden, 10>> {};
template <std::size_t Hidden>
struct MlpWithBug
    : Sequential<ColumnParallelLinear<784, Hidden>, Relu, RowWithDividedBias<Hidden, 10>> {};

constexpr std::size_t batch_size = 32;

template <class Architecture, class T, class Backend>
std::vector<double> losses(int ranks, std::size_t steps) {
  const example::ImageSet images =
      example::make_synthetic_images(Seed{3}, example::Part::train, steps * batch_size);
  return testing::image_losses<Architecture, T, Backend>(
      ranks, images, {{Axis::batch, batch_size}, {Axis::feature, 784}},
      Sgd{.learning_rate = 0.005, .momentum = 0.9}, steps);
}

}  // namespace

TEST_CASE("in float, losses agree to 1e-5 over 20 steps and to 1e-3 over the run") {
  constexpr std::size_t steps = 150;
  const auto train = losses<Mlp<512>, float, OneDnn>;
  const std::vector<double> alone = train(1, steps);
  REQUIRE(alone.size() == steps);
  CHECK(alone.back() < 0.5 * alone.front());  // it learns
  for (const int ranks : testing::rank_counts({2, 3, 4, 8})) {
    const std::vector<double> split = train(ranks, steps);
    const double early = largest_relative_difference(alone, split, 20);
    const double late = largest_relative_difference(alone, split, steps);
    std::printf("float, %d ranks: loss %.9f of step 20, %.9f of step %zu; off by %.1e, %.1e\n",
                ranks, split[19], split.back(), steps, early, late);
    CHECK(early <= 1e-5);
    CHECK(late <= 1e-3);
  }
}

TEST_CASE("in double, losses agree to 1e-10 over 20 steps") {
  constexpr std::size_t steps = 20;
  const auto train = losses<Mlp<64>, double, Reference>;
  const std::vector<double> alone = train(1, steps);
  for (const int ranks : testing::rank_counts({2, 3, 4, 8})) {
    const double difference = largest_relative_difference(alone, train(ranks, steps), steps);
    std::printf("double, %d ranks: off by %.1e\n", ranks, difference);
    CHECK(difference <= 1e-10);
  }
}

TEST_CASE("a bias divided by the number of ranks is noticed") {
  constexpr std::size_t steps = 20;
  const std::vector<double> right = losses<Mlp<512>, float, OneDnn>(1, steps);
  const auto train = losses<MlpWithBug<512>, float, OneDnn>;
  CHECK(train(1, steps) == right);  // alone, it is no bug
  for (const int ranks : testing::rank_counts({2, 8})) {
    const double difference = largest_relative_difference(right, train(ranks, steps), steps);
    std::printf("float with the bug, %d ranks: off by %.1e\n", ranks, difference);
    CHECK(difference > 1e-5);
  }
}
