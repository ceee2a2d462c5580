// Every layer of the map on meshes: what ranks with other samples, tokens or rows have together is
// what one rank has alone. Embeddings, whose input is no number, are in model_context.

#include <doctest/doctest.h>

#include <vector>

#include "shardwise/shardwise.hpp"
#include "shardwise/testing/layer_check.hpp"

using namespace shardwise;

namespace {

using Rows = SamplesOverMesh<Invariant, Axis::height>;
using Samples = SamplesOverMesh<Invariant, Axis::batch>;

inline constexpr Kernel padded = kernel(3, {.padding = 1});
inline constexpr Kernel halving = kernel(2, {.stride = 2});

const Shape rows{{Axis::batch, 5}, {Axis::feature, 8}};
const Shape tokens{{Axis::batch, 3}, {Axis::sequence, 5}, {Axis::feature, 8}};
const Shape lines{{Axis::batch, 5}, {Axis::channel, 4}, {Axis::width, 8}};
const Shape images{{Axis::batch, 3}, {Axis::channel, 4}, {Axis::height, 6}, {Axis::width, 4}};
const Shape volumes{
    {Axis::batch, 3}, {Axis::channel, 2}, {Axis::depth, 4}, {Axis::height, 6}, {Axis::width, 4}};

/// Meshes whose ranks have other samples; of six slices of 5 samples one is empty.
const std::vector<mesh> of_samples{
    {.data = 3}, {.replica = 3, .data = 2}, {.data = 2, .tensor = 2}};
/// Such whose ranks along `context` have other tokens, rows, or once more samples.
const std::vector<mesh> of_slices{
    {.context = 2}, {.context = 4, .tensor = 2}, {.replica = 2, .data = 2, .context = 2}};

/// On all of these meshes, up to the rounding of sums in another order.
template <Layout Offered = Invariant, Layout Wanted = Offered, class L>
void check(const L& layer, const Shape& in) {
  for (const auto* meshes : {&of_samples, &of_slices})
    for (const mesh& sizes : *meshes) {
      const CheckReport report = check_layer<Offered, Wanted>(sizes, layer, in, {.exact = false});
      CHECK_MESSAGE(report.passed(), report.text());
    }
}

/// A merge of what both of these make of the same tensor.
template <class Merge, class A = Identity, class B = Relu>
using Of = Join<Merge, A, B>;

}  // namespace

TEST_CASE("layers of features run on ranks with other samples") {
  using Table = struct Tied;
  using Square = Linear<split::none, 6, 6>;
  check<Samples>(
      Sequential<ColumnParallelLinear<8, 12>, BatchNorm<12>, LeakyRelu<>, RowParallelLinear<12, 6>,
                 Bias<6>, Dropout<1, 4>, Owns<Table, Square>, PRelu<6>, Elu<>,
                 Borrows<Table, Square>, HardSwish, Of<PartialSum, Identity, Square>, Of<Times<>>,
                 Of<Sum>, Of<Concat<Axis::feature>>, Softmax>{},
      rows);
}

TEST_CASE("layers of tokens run on ranks with other tokens") {
  check(Sequential<
            PositionEmbedding<9, 8>,
            Residual<Sequential<LayerNorm<8>,
                                Join<Attend<AttentionForm{.readers = 2, .window = 3}>,
                                     Sequential<HeadLinear<8, 4, 2>, HeadNorm<2>, Rope>,
                                     Sequential<HeadLinear<8, 2, 2>, Rope>, HeadLinear<8, 2, 2>>,
                                RowParallelLinear<8, 8>>>,
            Residual<Sequential<RmsNorm<8>,
                                Join<Times<activations::Silu>, ColumnParallelLinear<8, 12>,
                                     ColumnParallelLinear<8, 12>>,
                                RowParallelLinear<12, 8>, Dropout<1, 4>>>>{},
        tokens);
  check(Experts<split::none, ExpertSizes{.experts = 4, .chosen = 2, .features = 8, .hidden = 6}>{},
        tokens);
}

TEST_CASE("layers that change the number of tokens run on ranks with other tokens") {
  check(Sequential<ClassToken<8>, LayerNorm<8>>{}, tokens);
  check<Invariant, Samples>(FirstRows{}, tokens);
  check<Invariant, Samples>(LastRows{}, tokens);
  check<Invariant, Samples>(Sequential<FlattenFrom<Axis::sequence>, Linear<split::none, 40, 3>>{},
                            tokens);
}

TEST_CASE("layers of images run on ranks with other rows") {
  check<Rows>(
      Sequential<Conv2d<split::output, 4, 6, kernel(3, {.padding = 1, .bias = false})>,
                 BatchNorm<6>, Relu,
                 Conv2d<split::input, 6, 4, kernel(3, {.padding = 1, .grain = 2})>, GroupNorm<2, 4>,
                 ChannelDropout<1, 4>,
                 Conv2d<split::group, 4, 4, kernel(3, {.padding = 1, .groups = 2, .bias = false})>,
                 InstanceNorm<4>, MaxPool2d<pool(3, {.stride = 2, .padding = 1})>,
                 ConvTranspose2d<split::output, 4, 6, halving>, Upsample2d<2>, AveragePool2d<2>,
                 Conv2d<split::none, 6, 4, 1>, Join<ScaleChannels<>, Identity, GlobalAveragePool>,
                 Of<Concat<Axis::channel>>, PRelu<>>{},
      images);
  check<Rows>(Conv2d<split::width, 4, 3, padded>{}, images);
}

TEST_CASE("layers of whole images give each rank its samples") {
  check<Rows, Samples>(Sequential<GlobalAveragePool, Flatten, Linear<split::none, 4, 3>>{}, images);
  check<Rows, Samples>(Sequential<GlobalMaxPool, Flatten>{}, images);
  check<Rows, Samples>(Sequential<Flatten, ColumnParallelLinear<96, 5>>{}, images);
}

TEST_CASE("rows of images become tokens") {
  check<Rows, Invariant>(Sequential<PlanesToTokens, ClassToken<4>, LayerNorm<4>>{}, images);
  check<Rows, Invariant>(Sequential<Conv3d<split::output, 2, 4, padded>, PlanesToTokens>{},
                         volumes);
}

TEST_CASE("layers of lines and volumes run on meshes") {
  check<Samples>(
      Sequential<Conv1d<split::output, 4, 6, padded>, MaxPool1d<2>,
                 ConvTranspose1d<split::input, 6, 4, halving>, AveragePool1d<2>, Upsample1d<2>>{},
      lines);
  check<Rows>(
      Sequential<Conv3d<split::output, 2, 4, padded>, MaxPool3d<2>,
                 ConvTranspose3d<split::input, 4, 2, halving>, AveragePool3d<2>, Upsample3d<2>>{},
      volumes);
}
