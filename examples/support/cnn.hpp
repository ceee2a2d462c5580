#pragma once
// One convolutional network, split over ranks in three ways.
//
//     conv 3x3 to 32, ReLU, conv 3x3 to 32, ReLU, max-pool 2, dropout 1/4, flatten,
//     linear to 128, batch-norm, ReLU, dropout 1/2, linear to 10
//
// It takes square images [batch, Channels, Side, Side]. Weights begin equal and masks are equal in
// all three, at any number of ranks; what differs is who computes what, and what is sent.

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

/// Features of an image behind two convolutions, each of which takes a row at either side, and the
/// pooling.
constexpr std::size_t pooled_features(std::size_t side) {
  return 32 * ((side - 4) / 2) * ((side - 4) / 2);
}

// clang-format off

// begin: gathered
/// Every layer is split by output neuron, and its outputs gathered right behind it. Written by hand
/// that is an all-gather there, and an all-reduce of the gradient of the next layer's input, which
/// is what `To<Invariant>` gives. Behind `To<Replicated>` that gradient is left as a summand on each
/// rank, and the two exchanges of backward, the sum and the cut into shards, are one reduce-scatter.
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
/// By output, then by input, and again: between the two of a pair nothing is sent. Of all ways to
/// split all four weights this has the fewest collectives, three: a sum behind each pair, and one in
/// backward in front of the second.
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
/// Convolutions and pooling work on the rows of images that a rank has, and on those of its
/// neighbours that their windows read; the linear layers are split by output, then by input.
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
