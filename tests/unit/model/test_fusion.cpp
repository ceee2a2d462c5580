// A product that applies the activation behind it gives the bits of the two done one after another.

#include <doctest/doctest.h>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"

using namespace shardwise;
using testing::Observed;

namespace {

using Ends_ = Ends<Invariant, Invariant>;
template <class F>
using Fused = Sequential<ColumnParallelLinear<7, 11>, F, RowParallelLinear<11, 5>>;
/// A gather policy that moves nothing stands between product and activation.
template <class F>
using Apart = Sequential<ColumnParallelLinear<7, 11>, To<Sharded<Axis::feature>>, F,
                         RowParallelLinear<11, 5>>;

template <class M, class Use>
constexpr Activation fused() {
  return detail::applied_by<M, Use::trains, Ends_, 0>();
}

// That it happens: where the slope needs no more than the output, or nobody asks for a slope.
static_assert(fused<Fused<Relu>, Train>() == Activation::relu);
static_assert(fused<Fused<Tanh>, Train>() == Activation::tanh);
static_assert(fused<Fused<Gelu>, Train>() == Activation::none);
static_assert(fused<Fused<Gelu>, ForwardOnly>() == Activation::gelu);
static_assert(fused<Apart<Relu>, Train>() == Activation::none);
// A sum is not complete before the ranks have added it up.
using Row = Sequential<RowParallelLinear<7, 11>, Relu>;
static_assert(fused<Row, Train>() == Activation::none);
using Whole = Sequential<Linear<split::none, 7, 11>, Sigmoid>;
static_assert(fused<Whole, Train>() == Activation::sigmoid);
// A redistribution between the two is not skipped.
using Moved = Sequential<ColumnParallelLinear<7, 11>, To<Invariant>, Relu>;
static_assert(fused<Moved, Train>() == Activation::none);

template <class T, class F, class Use>
void check() {
  const testing::Workload work{{{Axis::batch, 6}, {Axis::feature, 7}}, testing::Data::reals};
  for (const int ranks : {1, 3}) {
    const Observed fused =
        testing::observe<Fused<F>, T, ThreadCommunicator, Ends_, Use>({}, ranks, work);
    const Observed apart =
        testing::observe<Apart<F>, T, ThreadCommunicator, Ends_, Use>({}, ranks, work);
    CHECK(fused["output 0"] == apart["output 0"]);
    CHECK(fused["evaluated"] == apart["evaluated"]);
    CHECK(fused["evaluated"] == fused["output 0"]);
    if constexpr (Use::trains) {
      CHECK(fused["input gradient 0"] == apart["input gradient 0"]);
      CHECK(fused["0.weight gradient"] == apart["0.weight gradient"]);
      CHECK(fused["0.bias gradient"] == apart["0.bias gradient"]);
      CHECK(fused["2.weight gradient"] == apart["3.weight gradient"]);
    }
  }
}

}  // namespace

TEST_CASE("fused or apart, the same bits") {
  SUBCASE("relu") { check<float, Relu, TrainWithInputGradient>(); }
  SUBCASE("tanh") { check<double, Tanh, TrainWithInputGradient>(); }
  SUBCASE("sigmoid") { check<float, Sigmoid, TrainWithInputGradient>(); }
  SUBCASE("gelu, forward only") { check<float, Gelu, ForwardOnly>(); }
  SUBCASE("silu, forward only") { check<double, Silu, ForwardOnly>(); }
}
