// Normalisations on whole, shared-out and split rows: at 1 to 8 ranks against one rank, calls
// against plans, and gradients against differences.

#include "ranks/model_compare.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/train/gradient_check.hpp"

using namespace shardwise;
using testing::check_model;
using testing::Data;

namespace {

template <Layout L>
using Both = Ends<L, L>;
using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;
using Features = Sharded<Axis::feature>;

Shape text(std::size_t length, Dim features) {
  return {{Axis::batch, 2}, {Axis::sequence, length}, features};
}

/// Even and uneven shares, fewer things than ranks, features in grains, and none at all.
template <template <std::size_t, Affine> class Norm, Affine A, class E,
          class Use = TrainWithInputGradient>
void check_norm() {
  const Shape shapes[] = {text(8, {Axis::feature, 8}), text(5, {Axis::feature, 7}),
                          text(3, {Axis::feature, 2}), text(1, {Axis::feature, 3, 5}),
                          text(0, {Axis::feature, 7})};
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    const Norm<dynamic, A> norm(shape.back().extent(), Epsilon{1e-3});
    check_model<double, E, Use>(norm, {shape, Data::reals, true, 2}, 1e-12);
  }
}

template <class E, class Norm>
void check_gradients_of(const Norm& norm) {
  for (const int ranks : testing::rank_counts({1, 2, 3, 8})) {
    testing::run_on_ranks(ranks, [&](testing::Ranks& c) {
      const auto report = check_gradients<typename E::offered, typename E::wanted>(
          c, norm, text(3, {Axis::feature, 5}));
      CAPTURE(ranks);
      CAPTURE(report.where);
      CHECK(report.passed());
    });
  }
}

}  // namespace

TEST_CASE("LayerNorm") {
  constexpr Affine both = Affine::weight_and_bias;
  SUBCASE("on whole rows") { check_norm<LayerNorm, both, Both<Invariant>>(); }
  SUBCASE("on a share of the rows") { check_norm<LayerNorm, both, Both<Sequence>>(); }
  SUBCASE("over split features") { check_norm<LayerNorm, both, Both<Features>>(); }
}

TEST_CASE("RmsNorm") {
  SUBCASE("on a share of the rows") { check_norm<RmsNorm, Affine::weight, Both<Batch>>(); }
  SUBCASE("over split features") { check_norm<RmsNorm, Affine::none, Both<Features>>(); }
  SUBCASE("over split features, without the gradient of the input") {
    check_norm<RmsNorm, Affine::weight, Both<Features>, Train>();
  }
}

TEST_CASE("gradients are differences") {
  SUBCASE("LayerNorm on a share of the rows") {
    check_gradients_of<Both<Sequence>>(LayerNorm<5>{});
  }
  SUBCASE("LayerNorm over split features") { check_gradients_of<Both<Features>>(LayerNorm<5>{}); }
  SUBCASE("RmsNorm over split features") { check_gradients_of<Both<Features>>(RmsNorm<5>{}); }
}

TEST_CASE("a block of a transformer on a stream that is split by sequence") {
  struct Block
      : Residual<
            Sequential<LayerNorm<6>, ColumnParallelLinear<6, 9>, Gelu, RowParallelLinear<9, 6>>> {};
  check_model<double, Both<Sequence>>(Sequential<Block, RmsNorm<6>>{},
                                      {text(5, {Axis::feature, 6}), Data::reals, true, 2}, 1e-12);
}

TEST_CASE("between two layers that keep features split") {
  struct Rows : Sequential<RowParallelLinear<6, 9>, LayerNorm<9>, RowParallelLinear<9, 5>> {};
  check_model<double>(Rows{}, {text(2, {Axis::feature, 6}), Data::reals, true, 2}, 1e-12);
}
