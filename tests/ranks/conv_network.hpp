#pragma once
// A network of convolutions of every split.

#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/sequential.hpp"

namespace testing {

using namespace shardwise;

inline constexpr Kernel padded = kernel(3, {.padding = 1});

/// Of 7 rows, and 6 channels in 6 groups: no number of ranks but one divides both.
struct ConvNetwork
    : Sequential<Conv2d<split::height, 2, 5, padded>, Relu, Conv2d<split::output, 5, 6, padded>,
                 Relu, Conv2d<split::group, 6, 12, kernel(3, {.stride = 2, .groups = 6})>, Gelu,
                 Conv2d<split::input, 12, 7, 2>, Relu, To<Sharded<Axis::batch>>,
                 Conv2d<split::none, 7, 5, 1>, Relu, Flatten, RowParallelLinear<5 * 2 * 2, 4>> {};

inline const Shape images{
    {Axis::batch, 6}, {Axis::channel, 2}, {Axis::height, 7}, {Axis::width, 8}};

}  // namespace testing
