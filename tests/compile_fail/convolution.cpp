// Convolutions that cannot be, each said where it is written.

#include "shardwise/layers/convolution.hpp"

#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/layers/transposed_convolution.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

#if CASE == 1  // expect: InputChannels must be a multiple of Groups
using Asked = Conv2d<split::none, 6, 8, kernel(3, {.groups = 4})>;
#elif CASE == 2   // expect: OutputChannels must be a multiple of Groups
using Asked = Conv2d<split::group, 8, 6, kernel(3, {.groups = 4})>;
#elif CASE == 3   // expect: at least one input channel and one output channel
using Asked = Conv2d<split::none, 0, 6, kernel(3)>;
#elif CASE == 4   // expect: write split::group, which gives each rank whole groups
using Asked = Conv2d<split::output, 8, 8, kernel(3, {.groups = 4})>;
#elif CASE == 5   // expect: write split::group, which gives each rank whole groups
using Asked = Conv2d<split::input, 8, 8, kernel(3, {.groups = 8})>;
#elif CASE == 6   // expect: a size, a stride and a dilation of at least 1
using Asked = Conv2d<split::none, 8, 8, kernel({3, 0})>;
#elif CASE == 7   // expect: a size, a stride and a dilation of at least 1
using Asked = Conv1d<split::none, 8, 8, kernel(3, {.stride = 0})>;
#elif CASE == 8   // expect: Padding adds zeros
using Asked = Conv2d<split::none, 8, 8, kernel(3, {.padding = -1})>;
#elif CASE == 9   // expect: give the padding in numbers
using Asked = Conv2d<split::none, 8, 8, kernel(3, {.stride = 2, .padding = same})>;
#elif CASE == 10  // expect: one number for all axes of space, or one for each
using Asked = Conv2d<split::none, 8, 8, kernel({3, 5, 7})>;
#elif CASE == 11  // expect: has at least one group
using Asked = Conv2d<split::none, 8, 8, kernel(3, {.groups = 0})>;
#elif CASE == 12  // expect: OutputChannels must be a multiple of Grain
using Asked = Conv2d<split::output, 8, 6, kernel(3, {.grain = 4})>;
#elif CASE == 13  // expect: leave .grain away
using Asked = Conv2d<split::group, 8, 8, kernel(3, {.groups = 4, .grain = 2})>;
#elif CASE == 14  // expect: Consumer takes Expected channels
using Asked = Sequential<Conv2d<split::output, 3, 8, 3>, Relu, BatchNorm<6> >;
#elif CASE == 15  // expect: shards of Producer in front of it could end within a group
using Asked = Sequential<Conv2d<split::output, 3, 8, 3>, Relu,
                         Conv2d<split::group, 8, 8, kernel(3, {.groups = 4})> >;
#elif CASE == 16  // expect: no axis SplitAxis to split its images along
using Asked = Conv1d<split::height, 8, 8, 3>;
#elif CASE == 17  // expect: a size, a stride and a dilation of at least 1
using Asked = Conv3d<split::none, 8, 8, kernel(3, {.dilation = {1, 0, 1}})>;
#elif CASE == 18  // expect: a size, a stride and a dilation of at least 1
using Asked = Conv2d<split::none, 8, 8, kernel(-3)>;
#elif CASE == 19  // expect: at least one input channel and one output channel
using Asked = Conv2d<split::output, 8, 0, kernel(3)>;
#elif CASE == 20  // expect: has at least one group
using Asked = Conv2d<split::none, 8, 8, kernel(3, {.groups = -2})>;
#elif CASE == 21  // expect: give .grain = 1
using Asked = Conv2d<split::output, 8, 8, kernel(3, {.grain = 0})>;
#elif CASE == 22  // expect: Consumer takes Expected channels
using Asked = Sequential<Conv2d<split::height, 3, 8, 3>, BatchNorm<8>, Relu, MaxPool2d<2>,
                         ChannelDropout<1, 4>, Conv2d<split::height, 16, 8, 3> >;
#elif CASE == 23  // expect: shards of Producer in front of it could end within a group
using Asked = Sequential<Conv2d<split::output, 3, 8, 3>, MaxPool2d<2>,
                         Conv2d<split::group, 8, 8, kernel(3, {.groups = 4})> >;
#elif CASE == 24  // expect: less than the stride, along every axis
using Asked = ConvTranspose2d<split::none, 8, 8, kernel(3, {.stride = 2, .output_padding = 2})>;
#else
using Asked = Sequential<Conv2d<split::output, 3, 8, kernel({3, 5}, {.padding = same, .grain = 2})>,
                         Relu, Conv2d<split::group, 8, 8, kernel(3, {.stride = 2, .groups = 4})>,
                         Conv2d<split::input, 8, 6, kernel(1, {.padding = {0, 1}})> >;
#endif

constexpr Asked asked{};
