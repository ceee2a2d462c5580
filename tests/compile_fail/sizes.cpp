// Sizes that are given twice or not at all, and splits and numbers that layers do not have.

#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

#if CASE == 1  // expect: A layer is given Given sizes at construction, but its type leaves
const Linear<split::none, 8, 4> layer(8, 4);
#elif CASE == 2  // expect: a size in the type is never given again
const ColumnParallelLinear<dynamic, 4> layer(8, 4);
#elif CASE == 3  // expect: but its type leaves Dynamic of its sizes open
const RowParallelLinear<dynamic, dynamic> layer(8);
#else
const Linear<split::none, dynamic, 4> layer(8);
#endif

#if CASE == 4  // expect: The layer has no axis S to be split by. Take split::output
const Linear<Axis, 8, 4> split_layer;
#elif CASE == 5  // expect: Repeat<N, Block> needs N of at least 1
const Repeat<0, Linear<split::none, 8, 8> > split_layer;
#elif CASE == 6  // expect: drops that fraction of the elements: it must be at least 0
const Dropout<4, 4> split_layer;
#elif CASE == 7  // expect: a parameter is used where it is stored
const ParameterUse<Sharded<Axis::input>, Replicated> split_layer;
#elif CASE == 8  // expect: an exchange by maximum or minimum is an all-reduce
const Exchange<Redistribute<Partial, Sharded<Axis::feature> >, Reduction::max> split_layer;
#else
const Linear<split::output, 8, 4> split_layer;
#endif
