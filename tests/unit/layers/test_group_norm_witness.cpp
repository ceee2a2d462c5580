// Group and instance normalisation against values from PyTorch, in every layout, and each dtype
// against double.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include "shardwise/layers/detail/convolution_checks.hpp"
#include "shardwise/layers/group_norm.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;
using witness::Values;

namespace {

/// Images as those of a case: the channels of a group are a unit.
Shape shape_of(const Values& c, std::size_t groups) {
  const auto& extents = c.shape("both/y");
  Shape shape{{Axis::batch, extents[0]}, {Axis::channel, groups, extents[1] / groups}};
  const std::size_t axes = extents.size() - 2;
  for (std::size_t i = 0; i < axes; ++i)
    shape.append({detail::space_axis(i, axes), extents[2 + i]});
  return shape;
}

constexpr testing::WitnessNumbers numbers{92, 93, 95};

/// As of LayerNorm: rounding x and its mean moves x - mean by eps |x|.
template <class T>
double bound(const Values& c) {
  return 16 * testing::eps<T> * (1 + 2 * c.number("offset"));
}

template <class Layer>
void check_in_layouts(const Layer& layer, const Values& c, std::size_t groups,
                      const std::string& form) {
  const Shape shape = shape_of(c, groups);
  const Values of_form = c.group(form);
  const testing::AgainstWitness against{of_form, numbers, {1, 2, 3, 8}, bound<double>(c)};
  const testing::RoundedTo<double> made{numbers.x, c.number("offset")};
  testing::check_in<double, Invariant, Sharded<Axis::batch>, Sharded<Axis::channel>,
                    Sharded<Axis::width>>(layer, shape, against, made, testing::Relative{});
  if (shape.has(Axis::height))
    testing::check_in<double, Sharded<Axis::height>>(layer, shape, against, made,
                                                     testing::Relative{});
}

/// Both forms of the case `name`.
template <std::size_t Groups>
void check_group(const std::string& name) {
  const Values c("layers/group_norm/group/" + name);
  REQUIRE(c.number("groups") == Groups);
  const std::size_t channels = c.shape("both/y")[1];
  const Epsilon epsilon{c.number("epsilon")};
  check_in_layouts(GroupNorm<Groups, dynamic>(channels, epsilon), c, Groups, "both");
  check_in_layouts(GroupNorm<Groups, dynamic, Affine::none>(channels, epsilon), c, Groups, "plain");
}

void check_instance(const std::string& name) {
  const Values c("layers/group_norm/instance/" + name);
  const std::size_t channels = c.shape("both/y")[1];
  const Epsilon epsilon{c.number("epsilon")};
  check_in_layouts(InstanceNorm<dynamic, Affine::weight_and_bias>(channels, epsilon), c, channels,
                   "both");
  check_in_layouts(InstanceNorm<dynamic>(channels, epsilon), c, channels, "plain");
}

}  // namespace

TEST_CASE("groups: values of PyTorch") {
  check_group<3>("lines");
  check_group<2>("images");
  check_group<1>("one");
  check_group<2>("volumes");
}

TEST_CASE("a group for each channel: values of PyTorch") {
  for (const char* name : {"lines", "images", "one", "volumes"}) check_instance(name);
}

TEST_CASE_TEMPLATE("each dtype rounds once", T, float, bf16, fp16) {
  const Values c("layers/group_norm/group/images");
  const GroupNorm<2, 8> layer;
  using E = Ends<Invariant, Invariant>;
  const testing::RoundedTo<T> made{numbers.x, c.number("offset")};
  testing::check_near(testing::run_on_witness<T, E>(layer, shape_of(c, 2), 1, numbers, made),
                      testing::run_on_witness<double, E>(layer, shape_of(c, 2), 1, numbers, made),
                      testing::eps<T> / 2 + bound<accumulate_t<T>>(c));
}

TEST_CASE("what has no whole groups is refused") {
  const auto images = [](Dim channels) {
    return Shape{{Axis::batch, 2}, channels, {Axis::height, 3}, {Axis::width, 2}};
  };
  CHECK_THROWS_WITH_AS((GroupNorm<2, 4>{}.output_shape(images({Axis::channel, 6}))),
                       "the input is a tensor [batch 2, channel 6, height 3, width 2], but the "
                       "layer normalises 2 groups of images [batch, channel, (depth,) (height,) "
                       "width] with 4 channels, equally many for each group",
                       shape_error);
  CHECK_THROWS_AS(
      (GroupNorm<2, 4>{}.output_shape({{Axis::batch, 2}, {Axis::channel, 4}, {Axis::sequence, 3}})),
      shape_error);
  CHECK_THROWS_AS((GroupNorm<2, dynamic>(3).output_shape(images({Axis::channel, 3}))), shape_error);
  CHECK_THROWS_AS(InstanceNorm<dynamic>(0).output_shape(images({Axis::channel, 0})), shape_error);
  CHECK_THROWS_AS((GroupNorm<2, 4>(Epsilon{-1})), argument_error);

  SingleRank alone;
  using Channels = Sharded<Axis::channel>;
  using Split =
      Model<GroupNorm<2, 8>, Context<float, Reference, SingleRank>, Ends<Channels, Channels>>;
  CHECK_THROWS_WITH_AS(Split(GroupNorm<2, 8>{}, alone, Seed{1}, images({Axis::channel, 4, 2})),
                       doctest::Contains("split by channel in units of 2, but a group has 4 "
                                         "channels, so that a shard could end within a group: let "
                                         "the layer in front keep whole groups together (.grain = "
                                         "4), or write To<Invariant> in front of this one"),
                       shape_error);
  const Split whole(GroupNorm<2, 8>{}, alone, Seed{1}, images({Axis::channel, 1, 8}));
}

TEST_CASE("a group of one value is not for training") {
  SingleRank alone;
  const Shape points{{Axis::batch, 2}, {Axis::channel, 4}, {Axis::height, 1}, {Axis::width, 1}};
  Model<InstanceNorm<4>, Context<float, Reference, SingleRank>, Ends<Invariant, Invariant>,
        TrainWithInputGradient>
      model(InstanceNorm<4>{}, alone, Seed{1}, points);
  const Tensor<float, Invariant> x(points);
  CHECK_THROWS_WITH_AS(model.forward(x.view()),
                       doctest::Contains("a single value for each group, which has no variance to "
                                         "train with: take larger images or groups, or evaluate"),
                       shape_error);
  CHECK(model.evaluate(x.view())[0] == 0);
}

TEST_CASE("names of norms of groups") {
  CHECK(detail::name_of<GroupNorm<8, 64>>() == "GroupNorm<8, 64>");
  CHECK(detail::name_of<GroupNorm<8, dynamic, Affine::none>>() ==
        "GroupNorm<8, dynamic, no weight>");
  CHECK(detail::name_of<InstanceNorm<64>>() == "InstanceNorm<64>");
  CHECK(detail::name_of<InstanceNorm<64, Affine::weight_and_bias>>() ==
        "InstanceNorm<64, weight and bias>");
}
