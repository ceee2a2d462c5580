// Normalisations on whole, shared-out and split rows, and between other layers.

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"

using namespace shardwise;
using testing::check_on_ranks;
using testing::up_to_rounding;

namespace {

using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;
using Features = Sharded<Axis::feature>;

Shape text(std::size_t length, Dim features) {
  return {{Axis::batch, 2}, {Axis::sequence, length}, features};
}

/// Even and uneven shares, fewer things than ranks, features in grains, and none at all.
template <template <std::size_t, Affine> class Norm, Affine A, class L,
          class Use = TrainWithInputGradient>
void check_norm() {
  for (const Shape& shape :
       {text(8, {Axis::feature, 8}), text(5, {Axis::feature, 7}), text(3, {Axis::feature, 2}),
        text(1, {Axis::feature, 3, 5}), text(0, {Axis::feature, 7})})
    check_on_ranks<L, L, Use>(Norm<dynamic, A>(shape.back().extent(), Epsilon{1e-3}), shape,
                              up_to_rounding);
}

}  // namespace

TEST_CASE("LayerNorm") {
  constexpr Affine both = Affine::weight_and_bias;
  SUBCASE("on whole rows") { check_norm<LayerNorm, both, Invariant>(); }
  SUBCASE("on a share of the rows") { check_norm<LayerNorm, both, Sequence>(); }
  SUBCASE("over split features") { check_norm<LayerNorm, both, Features>(); }
}

TEST_CASE("RmsNorm") {
  SUBCASE("on a share of the rows") { check_norm<RmsNorm, Affine::weight, Batch>(); }
  SUBCASE("over split features") { check_norm<RmsNorm, Affine::none, Features>(); }
  SUBCASE("over split features, with weights") { check_norm<RmsNorm, Affine::weight, Features>(); }
  SUBCASE("over split features, without the gradient of the input") {
    check_norm<RmsNorm, Affine::weight, Features, Train>();
  }
}

TEST_CASE("a block of a transformer on a stream that is split by sequence") {
  struct Block
      : Residual<
            Sequential<LayerNorm<6>, ColumnParallelLinear<6, 9>, Gelu, RowParallelLinear<9, 6>>> {};
  check_on_ranks<Sequence>(Sequential<Block, RmsNorm<6>>{}, text(5, {Axis::feature, 6}),
                           up_to_rounding);
}

TEST_CASE("between two layers that keep features split") {
  struct Rows : Sequential<RowParallelLinear<6, 9>, LayerNorm<9>, RowParallelLinear<9, 5>> {};
  check_on_ranks(Rows{}, text(2, {Axis::feature, 6}), up_to_rounding);
}
