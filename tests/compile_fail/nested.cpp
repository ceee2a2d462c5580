// Layers that do not meet, in compositions of compositions.

#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

#if CASE == 1  // expect: Consumer takes Expected features
using Asked = Sequential<Sequential<ColumnParallelLinear<7, 5>, Relu>, RowParallelLinear<4, 3> >;
#elif CASE == 2  // expect: Consumer takes Expected features
using Asked = Sequential<ColumnParallelLinear<7, 5>, Sequential<Relu, RowParallelLinear<4, 3> > >;
#elif CASE == 3  // expect: Consumer takes Expected features
using Asked = Sequential<ColumnParallelLinear<7, 5>, Residual<Linear<split::none, 6, 6> > >;
#else
using Asked = Sequential<Sequential<ColumnParallelLinear<7, 5>, Relu>,
                         Sequential<Relu, RowParallelLinear<5, 3> >,
                         Residual<Linear<split::none, 3, 3> >, Linear<split::none, dynamic, 2> >;
#endif

#if CASE == 0
const Asked* asked = nullptr;
#else
const Asked asked;
#endif
