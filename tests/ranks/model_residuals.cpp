// Residual blocks on whole and split streams, at 1 to 8 ranks against one rank.

#include "ranks/model_compare.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"

using namespace shardwise;
using testing::check_model;
using testing::Data;
using testing::Workload;

namespace {

using Sequence = Sharded<Axis::sequence>;

const Shape text{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 6}};

}  // namespace

TEST_CASE("a residual block") {
  struct Block : Residual<Sequential<ColumnParallelLinear<6, 9>, Relu, RowParallelLinear<9, 6>>> {};
  const Workload whole_numbers{text, Data::integers, true, 2};
  SUBCASE("on a whole stream") { check_model<float>(Block{}, whole_numbers, 0); }
  SUBCASE("on a stream split by sequence") {
    check_model<float, Ends<Sequence, Sequence>>(Block{}, whole_numbers, 0);
  }
  SUBCASE("offered sums, which it completes before it branches") {
    check_model<float, Ends<Invariant, Sequence>>(
        Sequential<RowParallelLinear<6, 6>, Block, Relu>{}, whole_numbers, 0);
  }
}

TEST_CASE("a residual block of nothing but a gather policy adds the stream to itself") {
  struct Double : Sequential<Linear<split::none, 6, 6>, Residual<To<Sharded<Axis::feature>>>> {};
  check_model<float>(Double{}, {text, Data::integers, true, 1}, 0);
}
