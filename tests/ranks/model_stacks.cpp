// Stacks of blocks on whole and split streams, at 1 to 8 ranks against one rank.

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

using Sequence = Sharded<Axis::sequence>;

const Shape text{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 6}};
const Workload reals{text, Data::reals, true, 2, 2};

struct FeedForward
    : Sequential<ColumnParallelLinear<6, 10>, Gelu, RowParallelLinear<10, 6>, Dropout<1, 8>> {};
struct Stack : Repeat<3, Residual<FeedForward>> {};

}  // namespace

TEST_CASE("three blocks") {
  SUBCASE("on a whole stream") { check_model<double>(Stack{}, reals, 1e-12); }
  SUBCASE("on a stream split by sequence") {
    check_model<double, Ends<Sequence, Sequence>>(Stack{}, reals, 1e-12);
  }
  SUBCASE("without the gradient of the input, stream split in the model") {
    struct Text : Sequential<To<Sequence>, Linear<split::none, 6, 6>, Dropout<1, 8>, Stack,
                             ColumnParallelLinear<6, 4>, To<Invariant>> {};
    check_model<double, Ends<Invariant, Invariant>, Train>(Text{}, reals, 1e-12);
  }
}

TEST_CASE("the same stack whichever way its stream is laid out") {
  const auto run = [&]<class E>(E) {
    return testing::observe<Stack, double, testing::Ranks, E, TrainWithInputGradient>(
        Stack{}, testing::any_ranks(3), reals);
  };
  const auto whole = run(Ends<Invariant, Invariant>{});
  const auto split = run(Ends<Sequence, Sequence>{});
  for (const auto& tensor : whole.tensors) {
    CAPTURE(tensor.first);
    CHECK(testing::relative_difference(split[tensor.first], tensor.second) <= 1e-12);
  }
}

TEST_CASE("a block that ends in a sum, repeated") {
  struct Rows : Repeat<3, Sequential<RowParallelLinear<6, 6>, Relu>> {};
  check_model<double>(Rows{}, reals, 1e-12);
}
