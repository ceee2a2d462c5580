// What the compiler cannot be asked, and what a check of a layer or loss cannot look at.

#include "shardwise/model/queries.hpp"

#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/testing/layer_check.hpp"
#include "shardwise/testing/loss_check.hpp"
#include "shardwise/train/mean_squared_error.hpp"

using namespace shardwise;

using Open = Sequential<Linear<split::output, dynamic, 8>, Relu, RowParallelLinear<8, 3>>;
struct Mlp : Sequential<ColumnParallelLinear<4, 8>, Relu, RowParallelLinear<8, 3>> {};

#if CASE == \
    1  // expect: the type L leaves sizes open that are `dynamic`, so the compiler cannot say
using Asked = Open;
#elif CASE == 2  // expect: the type L leaves sizes open that are `dynamic`
using Asked = Residual<Open>;
#elif CASE == 3  // expect: L is no layer: a model is made of types like Relu
using Asked = int;
#else
using Asked = Mlp;
#endif

#if CASE == 4  // expect: a model is asked about on Ranks ranks, of which there must be at least 1
constexpr int ranks = 0;
#else
constexpr int ranks = 4;
#endif

static_assert(plan<Asked, ranks>(batch{64}).bytes_sent() < 8_KiB);

#if CASE == 5  // expect: a model is asked about on Ranks ranks, of which there must be at least 1
constexpr auto held = memory_of<Mlp, -1>(batch{64});
#elif CASE == 6  // expect: the type L leaves sizes open that are `dynamic`
constexpr auto held = memory_of<Open, 4>(batch{64});
#else
constexpr auto held = memory_of<Mlp, 4>(batch{64});
#endif

#if CASE == \
    7  // expect: check_layer sets and reads whole tensors or shards: Offered and Wanted must
CheckReport checked() { return check_layer<Partial>(Mlp{}, Shape{}); }
#elif CASE == 9   // expect: check_layer, check_loss and check_gradients compare the ranks of
CheckReport checked(MeshRanks<ThreadCommunicator>& ranks) {
  return check_layer(ranks, Mlp{}, Shape{});
}
#elif CASE == 10  // expect: check_loss makes whole predictions or shards: name the layouts that
CheckReport checked() {
  return check_loss<Partial>(MeanSquaredError{}, Shape{}, Tensor<double, Invariant>(Shape{}));
}
#else
CheckReport checked();
#endif

#if CASE == 8  // expect: searches chains of layers and residual blocks
#include "shardwise/model/cheapest_split.hpp"
constexpr auto found =
    cheapest_split<Repeat<2, Linear<split::none, 4, 4>>, mesh{.tensor = 2}>({}, Shape{});
#endif
