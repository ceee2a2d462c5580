// Residual blocks on whole and split streams, alone and in stacks.

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/sum.hpp"

using namespace shardwise;
using testing::bit_by_bit;
using testing::check_on_ranks;
using testing::up_to_rounding;

namespace {

using Sequence = Sharded<Axis::sequence>;

const Shape text{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 6}};

struct FeedForward
    : Sequential<ColumnParallelLinear<6, 10>, Gelu, RowParallelLinear<10, 6>, Dropout<1, 8>> {};
struct Stack : Repeat<3, Residual<FeedForward>> {};

}  // namespace

TEST_CASE("a residual block") {
  struct Block : Residual<Sequential<ColumnParallelLinear<6, 9>, Relu, RowParallelLinear<9, 6>>> {};
  SUBCASE("on a whole stream") { check_on_ranks(Block{}, text, bit_by_bit); }
  SUBCASE("on a stream split by sequence") { check_on_ranks<Sequence>(Block{}, text, bit_by_bit); }
  SUBCASE("offered sums, which it completes before it branches") {
    check_on_ranks<Invariant, Sequence>(Sequential<RowParallelLinear<6, 6>, Block, Relu>{}, text,
                                        bit_by_bit);
  }
}

TEST_CASE("a residual block of nothing but a gather policy adds the stream to itself") {
  struct Double : Sequential<Linear<split::none, 6, 6>, Residual<To<Sharded<Axis::feature>>>> {};
  check_on_ranks(Double{}, text, bit_by_bit);
}

TEST_CASE("three blocks") {
  SUBCASE("on a whole stream") { check_on_ranks(Stack{}, text, up_to_rounding); }
  SUBCASE("on a stream split by sequence") {
    check_on_ranks<Sequence>(Stack{}, text, up_to_rounding);
  }
  SUBCASE("without the gradient of the input, stream split in the model") {
    struct Text : Sequential<To<Sequence>, Linear<split::none, 6, 6>, Dropout<1, 8>, Stack,
                             ColumnParallelLinear<6, 4>, To<Invariant>> {};
    check_on_ranks<Invariant, Invariant, Train>(Text{}, text, up_to_rounding);
  }
}

TEST_CASE("a block that ends in a sum, repeated") {
  struct Rows : Repeat<3, Sequential<RowParallelLinear<6, 6>, Relu>> {};
  check_on_ranks(Rows{}, text, up_to_rounding);
}

TEST_CASE("branches whose summands are added before the ranks sum them") {
  using Branch = Sequential<ColumnParallelLinear<6, 9>, Relu, RowParallelLinear<9, 6>>;
  struct Block : Residual<Join<PartialSum, Branch, RowParallelLinear<6, 6>, Branch>> {};
  SUBCASE("on a whole stream") { check_on_ranks(Block{}, text, bit_by_bit); }
  SUBCASE("on a stream split by sequence") { check_on_ranks<Sequence>(Block{}, text, bit_by_bit); }
  SUBCASE("beside a branch that is whole") {
    struct Beside : Join<PartialSum, Branch, Linear<split::none, 6, 6>> {};
    check_on_ranks(Beside{}, text, bit_by_bit);
  }
  SUBCASE("whole ones are added as by a Sum") {
    struct Whole : Join<PartialSum, Linear<split::none, 6, 6>, Relu> {};
    check_on_ranks<Sequence>(Whole{}, text, bit_by_bit);
  }
}
