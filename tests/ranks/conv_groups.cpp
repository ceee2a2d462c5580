// Grouped convolutions: shards of whole groups, each with its inputs, its outputs and its part of
// the groups.

#include "ranks/conv_cases.hpp"

using namespace shardwise;
using testing::BatchOfImages;
using testing::check_convolutions;
using testing::ConvolutionCase;
using testing::Counted;
using testing::Data;

namespace {

constexpr Kernel four_groups = kernel({3, 2}, {.stride = {1, 2}, .padding = 1, .groups = 4});
constexpr Kernel depthwise = kernel(3, {.padding = 1, .groups = 7, .bias = false});

template <class S>
using Grouped = Conv2d<S, dynamic, dynamic, four_groups>;
template <class S>
using Depthwise = Conv2d<S, dynamic, dynamic, depthwise>;
using OfChannels = Ends<Sharded<Axis::channel>, Sharded<Axis::channel>>;

// Units of one group and of two.
std::vector<ConvolutionCase> grouped() {
  using enum Axis;
  return {
      {"a unit for a group", {{batch, 2}, {channel, 4, 2}, {height, 4}, {width, 5}}, 12},
      {"two groups in a unit", {{batch, 2}, {channel, 2, 6}, {height, 4}, {width, 5}}, 4},
      {"all groups in one unit", {{batch, 2}, {channel, 1, 4}, {height, 4}, {width, 5}}, 8},
      {"reals", {{batch, 2}, {channel, 4, 2}, {height, 4}, {width, 5}}, 12, Data::reals},
  };
}
std::vector<ConvolutionCase> channel_by_channel() {
  using enum Axis;
  return {
      {"one output each", {{batch, 2}, {channel, 7}, {height, 4}, {width, 3}}, 7},
      {"two outputs each", {{batch, 2}, {channel, 7}, {height, 4}, {width, 3}}, 14},
  };
}

}  // namespace

TEST_CASE("by whole groups") {
  SUBCASE("groups of several channels") {
    check_convolutions<double, Counted, Grouped<split::group>>(grouped());
  }
  SUBCASE("between layers that are split by channel") {
    check_convolutions<double, Counted, Grouped<split::group>, OfChannels>(grouped());
  }
  SUBCASE("groups of one channel") {
    check_convolutions<double, Counted, Depthwise<split::group>, OfChannels>(channel_by_channel());
  }
}

TEST_CASE("all groups on every rank") {
  SUBCASE("not split") { check_convolutions<double, Counted, Grouped<split::none>>(grouped()); }
  SUBCASE("a batch over ranks") {
    check_convolutions<double, Counted, Depthwise<split::none>, BatchOfImages>(
        channel_by_channel());
  }
}

TEST_CASE("one group is split by group like any other number") {
  constexpr Kernel single = kernel(2, {.groups = 1});
  using enum Axis;
  const std::vector<ConvolutionCase> one{
      {"one unit", {{batch, 2}, {channel, 1, 3}, {height, 4}, {width, 3}}, 5}};
  check_convolutions<double, Counted, Conv2d<split::group, dynamic, dynamic, single>>(one);
}
