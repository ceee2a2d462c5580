// The network of example 07 learns alike in all three ways of splitting it, at any number of ranks;
// what a step sends is what the table in the README says.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <vector>

#include "../../examples/support/cnn.hpp"
#include "../../examples/support/synthetic_images.hpp"
#include "ranks/image_losses.hpp"
#include "shardwise/backend/reference.hpp"

using namespace shardwise;
using namespace example;

namespace {

constexpr std::size_t side = 10;  // two convolutions leave 6 rows, and pooling 3: fewer than ranks
constexpr std::size_t batch_size = 8;
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t steps = 3;  // a step is a hundred times slower, and races show in the first
#else
constexpr std::size_t steps = 20;
#endif

const Shape images{
    {Axis::batch, batch_size}, {Axis::channel, 1}, {Axis::height, side}, {Axis::width, side}};

/// The middle of made-up images.
ImageSet small_images() {
  const ImageSet large = make_synthetic_images(Seed{3}, Part::train, 5 * batch_size);
  ImageSet set = large;
  set.height = set.width = side;
  set.pixels.clear();
  for (std::size_t i = 0; i < large.count; ++i)
    for (std::size_t y = 8; y < 8 + side; ++y)
      for (std::size_t x = 8; x < 8 + side; ++x)
        set.pixels.push_back(large.pixels[(i * 28 + y) * 28 + x]);
  return set;
}

template <class Architecture, class T>
std::vector<double> losses(int ranks) {
  return testing::image_losses<Architecture, T, Reference>(
      ranks, small_images(), images, Sgd{.learning_rate = 0.01, .momentum = 0.5}, steps);
}

template <class T>
void compare_plans(double bound) {
  using Gathered = GatheredCnn<1, side>;
  const std::vector<double> alone = losses<Gathered, T>(1);
  REQUIRE(alone.size() == steps);
  CHECK((steps < 20 || alone.back() < 0.9 * alone.front()));  // it learns
  const auto check = [&](const char* plan, int ranks, const std::vector<double>& split) {
    const double off = testing::largest_relative_difference(alone, split, steps);
    std::printf("%zu bytes a number, %-11s, %d ranks: loss %.12f of the last step, off by %.1e\n",
                sizeof(T), plan, ranks, split.back(), off);
    CHECK(off <= bound);
  };
  for (const int ranks : testing::rank_counts({1, 2, 3, 4})) {
    if (ranks > 1) check("gathered", ranks, losses<Gathered, T>(ranks));
    check("alternating", ranks, losses<AlternatingCnn<1, side>, T>(ranks));
    check("spatial", ranks, losses<SpatialCnn<1, side>, T>(ranks));
  }
}

}  // namespace

TEST_CASE("in float, losses of all plans at 1 to 4 ranks agree to 1e-4 over 20 steps") {
  compare_plans<float>(1e-4);
}

TEST_CASE("in double, losses of all plans at 1 to 4 ranks agree to 1e-9 over 20 steps") {
  compare_plans<double>(1e-9);
}

TEST_CASE("a step on a batch of 32 over two ranks sends what the README says") {
  const Shape in{{Axis::batch, 32}, {Axis::channel, 1}, {Axis::height, 28}, {Axis::width, 28}};
  CHECK(plan<GatheredCnn<1, 28, Invariant>, 2>(in).bytes_sent() == 11'896'064);
  CHECK(plan<GatheredCnn<1, 28>, 2>(in).bytes_sent() == 10'292'480);
  CHECK(plan<AlternatingCnn<1, 28>, 2>(in).bytes_sent() == 5'900'800);
  CHECK(plan<SpatialCnn<1, 28>, 2>(in).bytes_sent() == 1'684'736);
}
