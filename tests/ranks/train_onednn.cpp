// oneDNN takes the steps of the readable backend, but for rounding: convolutions of every split,
// pooling and batch normalisation, and narrow compute over wide parameters.

#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

#include "ranks/conv_network.hpp"
#include "ranks/training_losses.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/experts.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/sgd.hpp"
#include "support/largest_difference.hpp"
#include "support/onednn_dtypes.hpp"

using namespace shardwise;

namespace {

using Convolutions = testing::ConvNetwork;

// All on the rows that a rank has, of which the last ranks get none.
struct Rows
    : Sequential<Conv2d<split::height, 2, 6, testing::padded>, BatchNorm<6>, Relu,
                 MaxPool2d<pool(3, {.stride = 1, .padding = 1})>,
                 AveragePool2d<pool(3, {.stride = 2, .padding = 1, .counts_padding = false})>,
                 Conv2d<split::height, 6, 6, kernel(3, {.padding = 1, .groups = 3})>, BatchNorm<6>,
                 Relu, AveragePool2d<2>, GlobalAveragePool, Flatten, Linear<split::none, 6, 4>> {};

struct Mlp : Sequential<ColumnParallelLinear<40, 48>, Relu, RowParallelLinear<48, 10>> {};

struct Mixture
    : Sequential<Linear<split::none, 40, 16>, Experts<split::expert, ExpertSizes{5, 2, 16, 24}>,
                 ColumnParallelLinear<16, 10>> {};

/// What a network computes in T over parameters in float learns, to `share` of its first loss.
template <class Network, class T, class Rule>
void compare(const Shape& in, const Rule& rule, std::size_t steps,
             std::initializer_list<int> rank_counts, double share, double bound) {
  if (!testing::onednn_computes<T>()) return;
  for (const int size : rank_counts) {
    CAPTURE(size);
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      const auto losses = [&]<class Backend>(std::type_identity<Backend>) {
        return testing::training_losses<Network, Precision<T, float>, Backend>(
            ranks, in, rule, steps, [](std::size_t) {});
      };
      const std::vector<double> expected = losses(std::type_identity<Reference>{});
      CHECK(expected.back() < share * expected.front());
      const double off =
          testing::largest_difference(losses(std::type_identity<OneDnn>{}), expected);
      CAPTURE(off);
      CHECK(off <= bound);
    });
  }
}

template <class Network, class T>
void compare_images(double bound) {
  compare<Network, T>(testing::images, Sgd{.learning_rate = 0.3, .momentum = 0.5}, 8, {1, 2, 3, 4},
                      0.98, bound);
}

}  // namespace

// Sums of at most 54 products in another order. Four times the largest difference of a loss
// near 1.4 in 8 steps, which is 7.9e-8 with AVX-512 and with AVX2, and 6.5e-8 with SSE4.1.
TEST_CASE("in float") {
  constexpr double rounding = 3.2e-7;
  SUBCASE("convolutions") { compare_images<Convolutions, float>(rounding); }
  SUBCASE("pooling and batch normalisation over rows") { compare_images<Rows, float>(rounding); }
  SUBCASE("experts") {
    compare<Mixture, float>({{Axis::batch, 30}, {Axis::feature, 40}}, AdamW{.learning_rate = 0.02},
                            8, {1, 2, 3, 7}, 0.9, rounding);
  }
}

// A sum in another order may round to the other neighbour in bf16, 2^-8 away: of logits below 2,
// less than a hundredth.
TEST_CASE("in bf16") {
  SUBCASE("convolutions") { compare_images<Convolutions, bf16>(0.01); }
  SUBCASE("pooling and batch normalisation over rows") { compare_images<Rows, bf16>(0.01); }
  SUBCASE("a perceptron") {
    compare<Mlp, bf16>({{Axis::batch, 24}, {Axis::feature, 40}}, AdamW{.learning_rate = 0.01}, 6,
                       {1, 2}, 0.9, 0.01);
  }
}
