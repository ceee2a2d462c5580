// Normalisations on whole, shared-out and split rows, and between other layers.

#include <cstddef>
#include <vector>

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/head_norm.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/model/model.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"

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

namespace {

/// Output, and gradients of the input and of the weight, one after another.
template <class T = double, class L>
std::vector<double> on_one_rank(const L& layer, const Shape& shape) {
  SingleRank alone;
  Model<L, Context<T, Reference, SingleRank>, Ends<Invariant, Invariant>, TrainWithInputGradient>
      model(layer, alone, Seed{1}, shape);
  const auto number = [](std::size_t i) {
    return static_cast<accumulate_t<T>>(static_cast<double>(i * i % 11) - 4.5);
  };
  const auto weight = testing::filled<T, Invariant>({{Axis::feature, 4}}, {}, number);
  model.set("weight", weight.view());
  const auto x = testing::filled<T, Invariant>(shape, {}, number);
  const auto dy =
      testing::filled<T, Invariant>(shape, {}, [&](std::size_t i) { return number(i + 3); });
  std::vector<double> all;
  const auto note = [&](const auto& view) {
    for (const T& value : view.span())
      all.push_back(static_cast<double>(static_cast<accumulate_t<T>>(value)));
  };
  note(model.forward(x.view()));
  note(model.backward(dy.view()));
  note(model.gather_gradient("weight").view());
  return all;
}

}  // namespace

TEST_CASE("HeadNorm is RmsNorm whose rows are heads") {
  CHECK(testing::largest_difference(
            on_one_rank(HeadNorm<4>(Epsilon{1e-3}), text(5, {Axis::feature, 3, 4})),
            on_one_rank(RmsNorm<4>(Epsilon{1e-3}), text(15, {Axis::feature, 4}))) < 1e-14);
  const auto check_dtype = [&](auto zero) {
    using T = decltype(zero);
    CHECK(on_one_rank<T>(HeadNorm<4>(Epsilon{1e-3}), text(5, {Axis::feature, 3, 4})) ==
          on_one_rank<T>(RmsNorm<4>(Epsilon{1e-3}), text(15, {Axis::feature, 4})));
  };
  check_dtype(float{});
  check_dtype(bf16{});
  check_dtype(fp16{});
  CHECK_THROWS_WITH_AS(HeadNorm<4>{}.output_shape(text(5, {Axis::feature, 12})),
                       doctest::Contains("the innermost axis must be feature heads*4"),
                       shape_error);
  for (const Shape& shape : {text(8, {Axis::feature, 8, 3}), text(3, {Axis::feature, 2, 3}),
                             text(0, {Axis::feature, 2, 3})}) {
    const HeadNorm<dynamic> norm(3, Epsilon{1e-3});
    check_on_ranks<Features, Features>(norm, shape, up_to_rounding);
    check_on_ranks<Sequence, Sequence>(norm, shape, up_to_rounding);
    check_on_ranks<Invariant, Invariant>(norm, shape, up_to_rounding);
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
