// Sizes of convolutions and normalisations that are given twice or not at all, and a Sequential of
// nothing.

#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

#if CASE == 1  // expect: A layer is given Given sizes at construction, but its type leaves
const Conv2d<split::none, 3, 8, 3> layer(3, 8);
#elif CASE == 2   // expect: but its type leaves Dynamic of its sizes open
const Conv2d<split::output, dynamic, 8, 3> layer;
#elif CASE == 3   // expect: a size in the type is never given again
const Conv1d<split::none, dynamic, 8, 3> layer(3, 8);
#elif CASE == 4   // expect: A layer is given Given sizes at construction
const LayerNorm<8> layer(8);
#elif CASE == 5   // expect: Give those that are `dynamic` in its type
const LayerNorm<dynamic> layer;
#elif CASE == 6   // expect: A layer is given Given sizes at construction
const RmsNorm<8> layer(8);
#elif CASE == 7   // expect: A layer is given Given sizes at construction
const BatchNorm<8> layer(8);
#elif CASE == 8   // expect: A layer is given Given sizes at construction
const BatchNorm<dynamic> layer;
#elif CASE == 9   // expect: A layer is given Given sizes at construction
const Linear<split::none, dynamic, 8> layer;
#elif CASE == 10  // expect: a Sequential needs at least one layer
const Sequential<> layer;
#elif CASE == 11  // expect: A layer is given Given sizes at construction
const RmsNorm<8> layer(1e-5);  // an Epsilon is meant
#else
const Conv2d<split::output, dynamic, 8, 3> layer(3);
const Conv1d<split::none, 3, dynamic, 3> other(8);
const LayerNorm<dynamic> norm(8);
const RmsNorm<8> fixed;
const BatchNorm<dynamic> batch_norm(8, Epsilon{1e-3});
#endif
