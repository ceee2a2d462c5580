// Perceptrons of several kinds at 1 to 8 ranks against one rank.

#include "ranks/model_compare.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"

using namespace shardwise;
using testing::check_model;
using testing::Data;
using testing::Workload;

namespace {

using Batch = Sharded<Axis::batch>;
using Features = Sharded<Axis::feature>;

const Shape rows{{Axis::batch, 6}, {Axis::feature, 7}};
const Workload whole_numbers{rows, Data::integers, true, 2};
const Workload reals{rows, Data::reals, true, 2, 2};

struct Mlp : Sequential<ColumnParallelLinear<7, 11>, Relu, RowParallelLinear<11, 5>> {};

struct DynamicMlp : Sequential<ColumnParallelLinear<dynamic, dynamic>, Relu,
                               RowParallelLinear<dynamic, dynamic>> {
  using Sequential::Sequential;
};

}  // namespace

TEST_CASE("column, ReLU, row: exact on integers") { check_model<float>(Mlp{}, whole_numbers, 0); }

TEST_CASE("the same with sizes given at construction") {
  const DynamicMlp mlp(ColumnParallelLinear<dynamic, dynamic>(7, 11), Relu{},
                       RowParallelLinear<dynamic, dynamic>(11, 5));
  check_model<float>(mlp, whole_numbers, 0);
  const Workload empty{{{Axis::batch, 0}, {Axis::feature, 7}}};
  check_model<float>(mlp, empty, 0);
}

TEST_CASE("column, GELU, dropout, row, dropout, from initial weights") {
  struct Dropping : Sequential<ColumnParallelLinear<7, 11>, Gelu, Dropout<1, 4>,
                               RowParallelLinear<11, 5>, Dropout<1, 8>> {};
  Workload work = reals;
  work.sets_parameters = false;
  check_model<double>(Dropping{}, work, 1e-12);
}

TEST_CASE("not split, on a batch over ranks: data parallelism") {
  struct Parallel
      : Sequential<Linear<split::none, 7, 11>, Tanh, Dropout<1, 4>, Linear<split::none, 11, 5>> {};
  check_model<double, Ends<Batch, Batch>, Train>(Parallel{}, reals, 1e-12);
}

TEST_CASE("every kind of split and gather policy in one model") {
  struct Mixed : Sequential<To<Batch>, Linear<split::none, 7, 6>, Silu, ColumnParallelLinear<6, 9>,
                            To<Invariant>, Sigmoid, Linear<split::none, 9, 8>, To<Features>,
                            RowParallelLinear<8, 10>, Tanh, RowParallelLinear<10, 3>,
                            To<Replicated>, GeluTanh, ColumnParallelLinear<3, 5>, To<Batch>> {};
  check_model<double>(Mixed{}, reals, 1e-12);
}
