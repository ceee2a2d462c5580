// Convolutions of every split, pooling and batch normalisation on oneDNN: the steps of the readable
// backend, but for rounding.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/largest_difference.hpp"
#include "support/onednn_dtypes.hpp"
#include "witness/formula.hpp"

using namespace shardwise;

namespace {

constexpr Kernel padded = kernel(3, {.padding = 1});

// 7 rows, and 6 channels in 6 groups: no number of ranks but one divides both.
struct Network
    : Sequential<Conv2d<split::height, 2, 5, padded>, Relu, Conv2d<split::output, 5, 6, padded>,
                 Relu, Conv2d<split::group, 6, 12, kernel(3, {.stride = 2, .groups = 6})>, Gelu,
                 Conv2d<split::input, 12, 7, 2>, Relu, To<Sharded<Axis::batch>>,
                 Conv2d<split::none, 7, 5, 1>, Relu, Flatten, RowParallelLinear<5 * 2 * 2, 4>> {};

// All on the rows that a rank has, of which the last ranks get none.
struct Rows
    : Sequential<Conv2d<split::height, 2, 6, padded>, BatchNorm<6>, Relu,
                 MaxPool2d<pool(3, {.stride = 1, .padding = 1})>,
                 AveragePool2d<pool(3, {.stride = 2, .padding = 1, .counts_padding = false})>,
                 Conv2d<split::height, 6, 6, kernel(3, {.padding = 1, .groups = 3})>, BatchNorm<6>,
                 Relu, AveragePool2d<2>, GlobalAveragePool, Flatten, Linear<split::none, 6, 4>> {};

const Shape images{{Axis::batch, 6}, {Axis::channel, 2}, {Axis::height, 7}, {Axis::width, 8}};

/// The loss of each of eight steps.
template <class Network, class B, class T>
std::vector<double> losses(ThreadCommunicator& ranks) {
  Model<Network, Context<Precision<T, float>, B, ThreadCommunicator>> model(Network{}, ranks,
                                                                            Seed{1}, images);
  Tensor<T, Invariant> x(images, place_of(ranks));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = detail::rounded<T>(witness::made(1, static_cast<std::int64_t>(i)));
  Tensor<std::int32_t, Invariant> labels(Shape{images[0]}, place_of(ranks));
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = witness::made_label(static_cast<std::int64_t>(i), 4);
  Optimizer optimizer(model, Sgd{.learning_rate = 0.3, .momentum = 0.5});
  std::vector<double> found;
  for (int step = 0; step < 8; ++step)
    found.push_back(train_step(model, x.view(), labels.view(), CrossEntropy{}, optimizer));
  return found;
}

template <class Network, class T>
void compare(double bound) {
  for (const int size : {1, 2, 3, 4}) {
    CAPTURE(size);
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      const std::vector<double> expected = losses<Network, Reference, T>(ranks);
      const std::vector<double> found = losses<Network, OneDnn, T>(ranks);
      CHECK(expected.back() < 0.98 * expected.front());
      testing::Largest largest;
      for (std::size_t i = 0; i < expected.size(); ++i)
        largest.see(std::abs(found[i] - expected[i]));
      const double off = largest;
      CAPTURE(off);
      CHECK(off <= bound);
    });
  }
}

}  // namespace

// Sums of at most 54 products in another order: 8 eps sqrt(54) of losses near 1.4, and 8 steps on.
TEST_CASE("in float, oneDNN takes the steps of the readable backend") {
  compare<Network, float>(6e-5);
}

// A sum in another order may round to the other neighbour in bf16, 2^-8 away: of logits below 2,
// less than a hundredth.
TEST_CASE("in bf16, oneDNN takes the steps of the readable backend") {
  if (!testing::onednn_computes<bf16>()) return;
  compare<Network, bf16>(0.01);
}

TEST_CASE("pooling and batch normalisation over rows, in float") { compare<Rows, float>(6e-5); }
TEST_CASE("pooling and batch normalisation over rows, in bf16") {
  if (testing::onednn_computes<bf16>()) compare<Rows, bf16>(0.01);
}
