#pragma once
// One convolutional network, split over ranks in three ways.
//
//     conv 3x3 to 32, ReLU, conv 3x3 to 32, ReLU, max-pool 2, dropout 1/4, flatten,
//     linear to 128, batch-norm, ReLU, dropout 1/2, linear to 10
//
// It takes square images [batch, Channels, Side, Side]. All three have the same initial weights and
// masks, at any number of ranks; they differ in what each rank computes and sends.

#include <cstddef>

#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/model/sequential.hpp"

namespace example {

namespace sw = shardwise;

/// Features of an image after the pooling and the two convolutions, each of which removes one row
/// on each side.
constexpr std::size_t pooled_features(std::size_t side) {
  return 32 * ((side - 4) / 2) * ((side - 4) / 2);
}

// clang-format off

// begin: gathered
/// Every layer is split by output neuron, and its outputs are gathered. Code written by hand makes
/// an all-gather there, and an all-reduce of the gradient of the next layer's input;
/// `To<Invariant>` gives the same. With `To<Replicated>` that gradient stays a summand on each
/// rank, and backward makes one reduce-scatter instead of an all-reduce and a slice.
template <std::size_t Channels, std::size_t Side, sw::Layout Gathered = sw::Replicated>
struct GatheredCnn
    : sw::Sequential<sw::Conv2d<sw::split::output, Channels, 32, sw::kernel(3)>,
                     sw::To<Gathered>,
                     sw::Relu,
                     sw::Conv2d<sw::split::output, 32, 32, sw::kernel(3)>,
                     sw::To<Gathered>,
                     sw::Relu,
                     sw::MaxPool2d<2>,
                     sw::Dropout<1, 4>,
                     sw::Flatten,
                     sw::ColumnParallelLinear<pooled_features(Side), 128>,
                     sw::To<Gathered>,
                     sw::BatchNorm<128>,
                     sw::Relu,
                     sw::Dropout<1, 2>,
                     sw::ColumnParallelLinear<128, 10>> {};
// end: gathered

// begin: alternating
/// By output, then by input, twice: within a pair nothing is sent. Of all ways to split all four
/// weights this has the fewest collectives, three: a sum after each pair, and in backward one in
/// front of the second pair.
template <std::size_t Channels, std::size_t Side>
struct AlternatingCnn
    : sw::Sequential<sw::Conv2d<sw::split::output, Channels, 32, sw::kernel(3)>,
                     sw::Relu,
                     sw::Conv2d<sw::split::input, 32, 32, sw::kernel(3)>,
                     sw::To<sw::Invariant>,
                     sw::Relu,
                     sw::MaxPool2d<2>,
                     sw::Dropout<1, 4>,
                     sw::Flatten,
                     sw::ColumnParallelLinear<pooled_features(Side), 128>,
                     sw::BatchNorm<128>,
                     sw::Relu,
                     sw::Dropout<1, 2>,
                     sw::RowParallelLinear<128, 10>> {};
// end: alternating

// begin: spatial
/// Convolutions and pooling work on a rank's rows of images and the halo rows that their windows
/// read; the linear layers are split by output, then by input.
template <std::size_t Channels, std::size_t Side>
struct SpatialCnn
    : sw::Sequential<sw::Conv2d<sw::split::height, Channels, 32, sw::kernel(3)>,
                     sw::Relu,
                     sw::Conv2d<sw::split::height, 32, 32, sw::kernel(3)>,
                     sw::Relu,
                     sw::MaxPool2d<2>,
                     sw::Dropout<1, 4>,
                     sw::Flatten,
                     sw::ColumnParallelLinear<pooled_features(Side), 128>,
                     sw::BatchNorm<128>,
                     sw::Relu,
                     sw::Dropout<1, 2>,
                     sw::RowParallelLinear<128, 10>> {};
// end: spatial

// clang-format on

}  // namespace example
