// Perceptrons of several kinds.

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"

using namespace shardwise;
using testing::bit_by_bit;
using testing::check_on_ranks;
using testing::up_to_rounding;

namespace {

using Batch = Sharded<Axis::batch>;
using Features = Sharded<Axis::feature>;

const Shape rows{{Axis::batch, 6}, {Axis::feature, 7}};

struct Mlp : Sequential<ColumnParallelLinear<7, 11>, Relu, RowParallelLinear<11, 5>> {};

struct DynamicMlp : Sequential<ColumnParallelLinear<dynamic, dynamic>, Relu,
                               RowParallelLinear<dynamic, dynamic>> {
  using Sequential::Sequential;
};

}  // namespace

TEST_CASE("column, ReLU, row: exact on integers") { check_on_ranks(Mlp{}, rows, bit_by_bit); }

TEST_CASE("the same with sizes given at construction") {
  const DynamicMlp mlp(ColumnParallelLinear<dynamic, dynamic>(7, 11), Relu{},
                       RowParallelLinear<dynamic, dynamic>(11, 5));
  check_on_ranks(mlp, rows, bit_by_bit);
  check_on_ranks(mlp, {{Axis::batch, 0}, {Axis::feature, 7}}, bit_by_bit);
}

TEST_CASE("column, GELU, dropout, row, dropout") {
  struct Dropping : Sequential<ColumnParallelLinear<7, 11>, Gelu, Dropout<1, 4>,
                               RowParallelLinear<11, 5>, Dropout<1, 8>> {};
  check_on_ranks(Dropping{}, rows, up_to_rounding);
}

TEST_CASE("not split, on a batch over ranks: data parallelism") {
  struct Parallel
      : Sequential<Linear<split::none, 7, 11>, Tanh, Dropout<1, 4>, Linear<split::none, 11, 5>> {};
  check_on_ranks<Batch, Batch, Train>(Parallel{}, rows, up_to_rounding);
}

TEST_CASE("every kind of split and gather policy in one model") {
  struct Mixed : Sequential<To<Batch>, Linear<split::none, 7, 6>, Silu, ColumnParallelLinear<6, 9>,
                            To<Invariant>, Sigmoid, Linear<split::none, 9, 8>, To<Features>,
                            RowParallelLinear<8, 10>, Tanh, RowParallelLinear<10, 3>,
                            To<Replicated>, GeluTanh, ColumnParallelLinear<3, 5>, To<Batch>> {};
  check_on_ranks(Mixed{}, rows, up_to_rounding);
}
