// Merges and upsampling against values from PyTorch, whole and split, and what they refuse.

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "shardwise/layers/concat.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/layers/scale_channels.hpp"
#include "shardwise/layers/times.hpp"
#include "shardwise/layers/upsample.hpp"
#include "shardwise/model/join.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;

namespace {

const Shape pictures{{Axis::batch, 2}, {Axis::channel, 5}, {Axis::height, 5}, {Axis::width, 3}};

/// An element is made of a few operations on numbers below 4; a gradient sums up to 15 of them.
template <class L, class... Layouts>
void check(const Shape& shape, const std::string& group) {
  const witness::Values theirs("layers/" + group);
  testing::check_in<double, Layouts...>(
      L{}, shape, testing::AgainstWitness{theirs, {90, 0, 91}, {1, 2, 3, 8}, 1e-14});
}

template <class L>
void check_merge(const std::string& name) {
  check<L, Invariant, Sharded<Axis::batch>, Sharded<Axis::channel>, Sharded<Axis::height>,
        Sharded<Axis::width>>(pictures, "merges/" + name);
}

using Means = ScaleChannels<activations::Sigmoid>;

}  // namespace

TEST_CASE("products of two values") {
  check_merge<Join<Times<>, Identity, Tanh>>("times");
  check_merge<Join<Times<activations::Silu>, Tanh, Identity>>("silu_times");
  check_merge<Join<Times<activations::Sigmoid>, Identity, Tanh>>("sigmoid_times");
}

TEST_CASE("channels times factors of their own") {
  check_merge<Join<Means, Identity, GlobalAveragePool>>("scale");
  check_merge<Join<ScaleChannels<activations::Gelu>, Tanh, GlobalAveragePool>>("gelu_scale");
}

TEST_CASE("values side by side") {
  check_merge<Join<Concat<Axis::channel>, Identity, Tanh, Sigmoid>>("channels");
  using EverySecondRow = MaxPool2d<pool(1, {.stride = {2, 1}})>;
  check_merge<Join<Concat<Axis::height>, Tanh, EverySecondRow>>("rows");
}

TEST_CASE("nearest upsampling") {
  const Shape lines{{Axis::batch, 2}, {Axis::channel, 2}, {Axis::width, 5}};
  const Shape images{{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 5}, {Axis::width, 3}};
  const Shape volumes{
      {Axis::batch, 1}, {Axis::channel, 2}, {Axis::depth, 5}, {Axis::height, 2}, {Axis::width, 3}};
  check<Upsample1d<3>, Invariant, Sharded<Axis::width>, Sharded<Axis::batch>>(
      lines, "upsampling/nearest1");
  check<Upsample2d<PerAxis{2, 3}>, Sharded<Axis::height>, Sharded<Axis::width>,
        Sharded<Axis::channel>>(images, "upsampling/nearest2");
  check<Upsample3d<PerAxis{2, 1, 2}>, Sharded<Axis::depth>, Sharded<Axis::height>,
        Sharded<Axis::width>>(volumes, "upsampling/nearest3");
}

TEST_CASE("shapes of side by side") {
  constexpr Concat<Axis::feature> concat;
  using Shapes = std::array<Shape, 2>;
  const Dim rows{Axis::batch, 4};
  CHECK(
      concat.output_shape(Shapes{{{rows, {Axis::feature, 3, 2}}, {rows, {Axis::feature, 5, 2}}}}) ==
      Shape{rows, {Axis::feature, 8, 2}});
  CHECK(concat.output_shape(Shapes{{{rows, {Axis::feature, 3, 2}}, {rows, {Axis::feature, 5}}}}) ==
        Shape{rows, {Axis::feature, 11}});
  CHECK(
      concat.output_shape(Shapes{{{rows, {Axis::feature, dynamic}}, {rows, {Axis::feature, 5}}}}) ==
      Shape{rows, {Axis::feature, dynamic}});
  CHECK(concat.output_shape(Shapes{{{rows, {Axis::feature, 3}}, {}}}) == Shape{});
}

TEST_CASE("what a merge cannot take is refused") {
  using Shapes = std::array<Shape, 2>;
  const Shape other{{Axis::batch, 2}, {Axis::channel, 5}, {Axis::height, 4}, {Axis::width, 3}};
  CHECK_THROWS_WITH_AS(
      Times<>{}.output_shape(Shapes{pictures, other}),
      "a Times is given tensors [batch 2, channel 5, height 5, width 3] and [batch 2, channel 5, "
      "height 4, width 3]: what it multiplies must have the same shape",
      shape_error);
  CHECK_THROWS_WITH_AS(
      Concat<Axis::channel>{}.output_shape(Shapes{pictures, other}),
      "a Concat along channel is given tensors [batch 2, channel 5, height 5, width 3] and [batch "
      "2, channel 5, height 4, width 3]: both must have that axis, and all others must be equal",
      shape_error);
  CHECK_THROWS_AS(Concat<Axis::sequence>{}.output_shape(Shapes{pictures, pictures}), shape_error);
  CHECK_THROWS_WITH_AS(
      Means{}.output_shape(Shapes{pictures, other}),
      "a ScaleChannels is given images [batch 2, channel 5, height 5, width 3] and factors [batch "
      "2, channel 5, height 4, width 3]: it takes [batch, channel, ...], and factors of the same "
      "batch and channels, with no axes of space or with those of extent 1",
      shape_error);
  CHECK(Means{}.output_shape(Shapes{pictures, {pictures[0], pictures[1]}}) == pictures);
  CHECK_THROWS_AS(Upsample1d<2>{}.output_shape(pictures), shape_error);
}

TEST_CASE("names of merges and of upsampling") {
  CHECK(detail::name_of<Times<>>() == "Times");
  CHECK(detail::name_of<Times<activations::Silu>>() == "Times<silu>");
  CHECK(detail::name_of<Means>() == "ScaleChannels<sigmoid>");
  CHECK(detail::name_of<Concat<Axis::channel>>() == "Concat<channel>");
  CHECK(detail::name_of<Upsample2d<PerAxis{2, 3}>>() == "Upsample2d<2x3>");
}
