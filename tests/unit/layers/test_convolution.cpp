// Convolutions: names, what they refuse, how they begin, and their gradients against differences.

#include <doctest/doctest.h>

#include <string>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/transposed_convolution.hpp"
#include "shardwise/train/gradient_check.hpp"

using namespace shardwise;

namespace {

using Channels = Sharded<Axis::channel>;
using Batch = Sharded<Axis::batch>;

Shape pictures(const Dim& channels, std::size_t height, std::size_t width) {
  return {{Axis::batch, 2}, channels, {Axis::height, height}, {Axis::width, width}};
}

/// Parameters as they begin on `ranks` ranks.
template <class L>
testing::Observed begun(const L& layer, const Shape& in, int ranks) {
  testing::Recorder recorder(ranks);
  testing::run_on_ranks(ranks, [&](testing::Ranks& c) {
    Model<L, Context<float, Reference, testing::Ranks>, Ends<Invariant, Invariant>, ForwardOnly>
        model(layer, c, Seed{3}, in);
    model.visit_parameters([&](auto& p) { recorder.put(p.name, p.value); });
  });
  return recorder.take();
}

template <Layout Offered = Invariant, Layout Wanted = Invariant, class L>
void gradients_are_right(const L& layer, const Shape& in) {
  testing::run_on_ranks(testing::any_ranks(3), [&](testing::Ranks& ranks) {
    const GradientReport report = check_gradients<Offered, Wanted>(ranks, layer, in, Seed{1}, 20);
    const std::string name = detail::name_of<L>();
    INFO(name << ": " << report.largest_error << " at " << report.where);
    CHECK(report.passed());
    CHECK(report.largest_error < 1e-8);
  });
}

}  // namespace

TEST_CASE("names of convolutions") {
  CHECK(detail::name_of<Conv2d<split::output, 3, 32, 3>>() == "Conv2d<output, 3, 32, 3x3>");
  CHECK(detail::name_of<
            Conv1d<split::none, dynamic, 8, kernel(5, {.padding = same, .bias = false})>>() ==
        "Conv1d<none, dynamic, 8, 5, padding 2, no bias>");
  CHECK(detail::name_of<
            Conv3d<split::group, 8, 8,
                   kernel(2, {.stride = {1, 2, 3}, .padding = sides(1, 0), .groups = 4})>>() ==
        "Conv3d<group, 8, 8, 2x2x2, stride 1x2x3, padding (1+0)x(1+0)x(1+0), groups 4>");
  CHECK(detail::name_of<
            Conv2d<split::input, 8, 8, kernel({1, 3}, {.dilation = {1, 2}, .grain = 4})>>() ==
        "Conv2d<input, 8, 8, 1x3, dilation 1x2, grain 4>");
}

TEST_CASE("inputs that a convolution cannot take") {
  const Conv2d<split::output, 3, 8, kernel({3, 2}, {.dilation = {3, 1}})> layer;
  CHECK_THROWS_WITH_AS(
      layer.output_shape({{Axis::batch, 2}, {Axis::feature, 3}}),
      "the input is a tensor [batch 2, feature 3], but a convolution over 2 axes "
      "takes [batch, channel, height, width], of grain 1 along every axis of space",
      shape_error);
  // Units of two rows would be cut otherwise than the rows that come out.
  CHECK_THROWS_AS(
      layer.output_shape(
          {{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 4, 2}, {Axis::width, 8}}),
      shape_error);
  CHECK_THROWS_AS(layer.output_shape(
                      {{Axis::batch, 2}, {Axis::channel, 3}, {Axis::width, 9}, {Axis::height, 9}}),
                  shape_error);
  CHECK_THROWS_WITH_AS(layer.output_shape(pictures({Axis::channel, 4}, 9, 9)),
                       "the input is a tensor [batch 2, channel 4, height 9, width 9], but the "
                       "weight has 3 input channels (8 output): the input must have as many",
                       shape_error);
  CHECK_THROWS_WITH_AS(
      layer.output_shape(pictures({Axis::channel, 3}, 6, 9)),
      "the input is a tensor [batch 2, channel 3, height 6, width 9], too small for the kernel: 3 "
      "taps with dilation 3 reach over 7, but its height is 6 with 0 of padding: take a larger "
      "image, more padding or a smaller kernel",
      shape_error);
  CHECK_NOTHROW(layer.output_shape(pictures({Axis::channel, 3}, 7, 2)));
}

TEST_CASE("channels given at construction that cannot be divided") {
  using Dynamic = Conv2d<split::none, dynamic, dynamic, kernel(1, {.groups = 4, .grain = 2})>;
  CHECK_THROWS_WITH_AS(Dynamic(6, 8).output_shape(pictures({Axis::channel, 6}, 1, 1)),
                       "a convolution of 6 input and 8 output channels cannot have 4 groups and "
                       "keep 2 output channels together: there must be channels, equally many for "
                       "each",
                       shape_error);
  CHECK_THROWS_AS(Dynamic(8, 6).output_shape(pictures({Axis::channel, 8}, 1, 1)), shape_error);
  CHECK_THROWS_AS(Dynamic(0, 8).output_shape(pictures({Axis::channel, 0}, 1, 1)), shape_error);
  CHECK_THROWS_AS(Dynamic(8, 0).parameter_specs(pictures({Axis::channel, 8}, 1, 1)), shape_error);
  CHECK_NOTHROW(Dynamic(8, 4).output_shape(pictures({Axis::channel, 8}, 1, 1)));
}

TEST_CASE("shards that could end within a group") {
  const Conv2d<split::group, 8, 8, kernel(1, {.groups = 2})> layer;
  CHECK_THROWS_WITH_AS(layer.output_shape(pictures({Axis::channel, 4, 2}, 1, 1)),
                       "the input is a tensor [batch 2, channel 4*2, height 1, width 1], whose "
                       "channels are kept together in units of 2, but a group has 4 of them, so "
                       "that a shard could end within a group: let the layer in front keep whole "
                       "groups together (.grain = 4). The channels of a model's input are given "
                       "as {Axis::channel, 2, 4}",
                       shape_error);
  CHECK(layer.output_shape(pictures({Axis::channel, 2, 4}, 1, 1))[1] == Dim{Axis::channel, 2, 4});
  CHECK(layer.output_shape(pictures({Axis::channel, 1, 8}, 1, 1))[1] == Dim{Axis::channel, 1, 8});
}

TEST_CASE("an error names the layer") {
  using Net = Sequential<Conv2d<split::output, 3, 4, 3>, Relu, Conv2d<split::input, 4, 2, 3>>;
  SingleRank alone;
  using M = Model<Net, Context<float, Reference, SingleRank>>;
  CHECK_THROWS_WITH_AS(M(Net{}, alone, Seed{1}, pictures({Axis::channel, 3}, 4, 9)),
                       doctest::Contains("2: Conv2d<input, 4, 2, 3x3>: the input is a tensor "
                                         "[batch 2, channel 4, height 2, width 7], too small"),
                       shape_error);
  CHECK_THROWS_WITH_AS(M(Net{}, alone, Seed{1}),
                       doctest::Contains("give the Model the shape of its input"), shape_error);
}

TEST_CASE("a transposed convolution without a bias applies the function to its sums alone") {
  using Layer = ConvTranspose1d<split::none, 1, 1, kernel(1, {.bias = false})>;
  using Net = Sequential<Layer, Relu>;
  const Shape shape{{Axis::batch, 1}, {Axis::channel, 1}, {Axis::width, 3}};
  SingleRank alone;
  Model<Net, Context<double, Reference, SingleRank>> model(
      Net(Layer{}.initialized_by(init::ones), Relu{}), alone, Seed{1}, shape);
  const double x[] = {-1, 0, 2};
  const auto y = model.forward(View<const double, Invariant>(x, shape, Place{0, 1}));
  CHECK(y[0] == 0);
  CHECK(y[1] == 0);
  CHECK(y[2] == 2);
}

TEST_CASE("a convolution begins the same however it is split and over however many ranks") {
  const Shape in = pictures({Axis::channel, 6}, 3, 3);
  const auto one = begun(Conv2d<split::none, 6, 5, 3>{}, in, 1).tensors;
  CHECK(one.at("weight").size() == 6 * 5 * 9);
  for (const int ranks : testing::rank_counts({1, 2, 5, 8})) {
    CAPTURE(ranks);
    CHECK(begun(Conv2d<split::none, 6, 5, 3>{}, in, ranks).tensors == one);
    CHECK(begun(Conv2d<split::output, 6, 5, 3>{}, in, ranks).tensors == one);
    CHECK(begun(Conv2d<split::input, 6, 5, 3>{}, in, ranks).tensors == one);
  }
}

TEST_CASE("gradients of convolutions against differences") {
  const Shape in = pictures({Axis::channel, 4}, 5, 4);
  gradients_are_right(Conv2d<split::output, 4, 5, kernel(3, {.stride = {1, 2}, .padding = 1})>{},
                      in);
  gradients_are_right<Channels, Batch>(
      Conv2d<split::input, 4, 5, kernel({2, 3}, {.padding = same, .dilation = 2})>{}, in);
  gradients_are_right<Batch, Batch>(
      Conv2d<split::none, 4, 6, kernel(2, {.padding = sides(0, 3), .groups = 2})>{}, in);
  gradients_are_right<Channels, Channels>(
      Conv2d<split::group, 4, 8, kernel(3, {.padding = 1, .groups = 4})>{}, in);
  using Rows = Sharded<Axis::height>;
  gradients_are_right<Rows, Rows>(
      Conv2d<split::height, 4, 5, kernel(3, {.stride = {2, 1}, .padding = sides(2, 1)})>{}, in);
  // A whole network, in which every redistribution between its layers runs backward too.
  gradients_are_right(Sequential<Conv2d<split::output, 4, 6, kernel(3, {.padding = 1})>, Tanh,
                                 Conv2d<split::group, 6, 12, kernel(2, {.stride = 2, .groups = 6})>,
                                 Gelu, Flatten, RowParallelLinear<12 * 2 * 2, 3>>{},
                      in);
}
