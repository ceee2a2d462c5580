// Kernels of other sizes, strides, dilations and paddings, in one, two and three axes of space, and
// other dtypes.

#include "ranks/conv_cases.hpp"

using namespace shardwise;
using testing::BatchOfImages;
using testing::check_convolutions;
using testing::ConvolutionCase;
using testing::Counted;

namespace {

// Each axis by another window, with padding that differs from side to side.
constexpr Kernel askew =
    kernel({2, 4}, {.stride = {3, 1}, .padding = sides({0, 3}, {2, 5}), .dilation = {2, 1}});
constexpr Kernel of_text = kernel(5, {.stride = 2, .padding = 4, .dilation = 2, .bias = false});
constexpr Kernel of_body = kernel({2, 3, 1}, {.padding = same, .dilation = {1, 2, 1}});

template <class S>
using Askew = Conv2d<S, dynamic, dynamic, askew>;
template <class S>
using Text = Conv1d<S, dynamic, dynamic, of_text>;
template <class S>
using Body = Conv3d<S, dynamic, dynamic, of_body>;

std::vector<ConvolutionCase> pictures() {
  using enum Axis;
  return {
      {"uneven", {{batch, 2}, {channel, 5}, {height, 7}, {width, 3}}, 7},
      {"few channels", {{batch, 2}, {channel, 3}, {height, 1}, {width, 1}}, 2},
  };
}
std::vector<ConvolutionCase> texts() {
  using enum Axis;
  return {
      {"uneven", {{batch, 3}, {channel, 4}, {width, 11}}, 5},
      {"shorter than the kernel", {{batch, 2}, {channel, 9}, {width, 1}}, 9},
  };
}
std::vector<ConvolutionCase> bodies() {
  using enum Axis;
  return {
      {"uneven", {{batch, 2}, {channel, 3}, {depth, 3}, {height, 4}, {width, 2}}, 5},
  };
}

}  // namespace

TEST_CASE("two axes") {
  SUBCASE("by output") { check_convolutions<double, Counted, Askew<split::output>>(pictures()); }
  SUBCASE("by input") { check_convolutions<double, Counted, Askew<split::input>>(pictures()); }
  SUBCASE("by batch") {
    check_convolutions<double, Counted, Askew<split::none>, BatchOfImages>(pictures());
  }
}

TEST_CASE("one axis, without a bias") {
  SUBCASE("by output") { check_convolutions<double, Counted, Text<split::output>>(texts()); }
  SUBCASE("by input") { check_convolutions<double, Counted, Text<split::input>>(texts()); }
}

TEST_CASE("three axes, padded to keep the extents") {
  SUBCASE("by output") { check_convolutions<double, Counted, Body<split::output>>(bodies()); }
  SUBCASE("by input") { check_convolutions<double, Counted, Body<split::input>>(bodies()); }
  SUBCASE("by batch") {
    check_convolutions<double, Counted, Body<split::none>, BatchOfImages>(bodies());
  }
}

TEST_CASE("other dtypes") {
  SUBCASE("bfloat16") { check_convolutions<bf16, testing::Ranks, Text<split::output>>(texts()); }
  SUBCASE("float16") { check_convolutions<fp16, testing::Ranks, Text<split::input>>(texts()); }
}
