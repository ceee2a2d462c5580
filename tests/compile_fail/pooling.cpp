// Windows that cannot pool, each said where it is written.

#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

#if CASE == 1  // expect: at most half of its window
using Asked = MaxPool2d<pool(3, {.padding = 2})>;
#elif CASE == 2   // expect: at most half of its window
using Asked = AveragePool1d<pool(4, {.padding = sides(0, 3)})>;
#elif CASE == 3   // expect: a size, a stride and a dilation of at least 1
using Asked = MaxPool2d<pool({2, 0}, {.stride = 1})>;
#elif CASE == 4   // expect: a size, a stride and a dilation of at least 1
using Asked = AveragePool2d<pool(2, {.stride = {0, 1}})>;
#elif CASE == 5   // expect: Padding adds zeros
using Asked = MaxPool2d<pool(2, {.padding = -1})>;
#elif CASE == 6   // expect: one number for all axes of space, or one for each
using Asked = MaxPool1d<pool({2, 2})>;
#elif CASE == 7   // expect: Consumer takes Expected features
using Asked = Sequential<Linear<split::none, 3, 8>, Relu, BatchNorm<7> >;
#elif CASE == 8   // expect: a size, a stride and a dilation of at least 1
using Asked = AveragePool3d<pool(-2)>;
#elif CASE == 9   // expect: a size, a stride and a dilation of at least 1
using Asked = MaxPool1d<pool(3, {.dilation = 0})>;
#elif CASE == 10  // expect: normalises at least one channel
using Asked = BatchNorm<0>;
#elif CASE == 11  // expect: add .counts_padding = false
using Asked = AveragePool2d<pool(3, {.padding = 1, .ceil_mode = true})>;
#else
using Asked = Sequential<MaxPool2d<pool(3, {.padding = 1})>, AveragePool2d<pool(4, {.padding = 2})>,
                         BatchNorm<8> >;
#endif

constexpr Asked asked{};
