// Convolutions against values from PyTorch.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/transposed_convolution.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;
using testing::Whole;

namespace {

using Everywhere = Ends<Invariant, Invariant>;
using OverBatch = Ends<Sharded<Axis::batch>, Sharded<Axis::batch>>;

/// Products are multiples of 2^-20, of which double has every sum exactly, in any order.
template <class E = Everywhere, class Layer>
void check(const Layer& layer, const Shape& in, const std::string& name) {
  const witness::Values theirs("layers/convolutions/" + name);
  testing::check_between<double, E>(
      layer, in, testing::AgainstWitness{theirs, {80, 81, 83}, testing::rank_counts({1, 3}), 0});
}

/// Multiples of 1/64, which bf16 has exactly.
Whole coarse(std::uint64_t number, std::size_t count) {
  Whole whole = testing::AsMade{}(number, count);
  for (double& value : whole) value = std::floor(64 * value) / 64;
  return whole;
}

/// Products are multiples of 2^-12, of which double and float have every sum exactly. In bf16 what
/// each rank gives and the sum over ranks are rounded: by up to 0.0049 of the largest element.
template <class T>
constexpr double bound = std::is_same_v<T, bf16> ? 0x1p-7 : 0;

template <class T = double, class E = Everywhere, class Layer>
void check_transposed(const Layer& layer, const Shape& in, const std::string& name) {
  const witness::Values theirs("layers/transposed_convolutions/" + name);
  testing::check_between<T, E>(
      layer, in,
      testing::AgainstWitness{theirs, {80, 81, 83}, testing::rank_counts({1, 3}), bound<T>}, coarse,
      testing::Relative{});
}

/// What rules give for the fans of a layer, beside what PyTorch gives.
template <class Layer>
void check_begins(const Layer& layer, const Shape& in, const std::string& name) {
  const witness::Values theirs("layers/initialisers/" + name);
  CHECK(static_cast<double>(layer.in_channels()) == theirs.number("in"));
  CHECK(static_cast<double>(layer.out_channels()) == theirs.number("out"));
  CHECK(static_cast<double>(Layer::form.groups) == theirs.number("groups"));
  const auto specs = layer.parameter_specs(in);
  const auto& fans = specs[0].fans;
  const auto is = [](const Initializer& ours, Initializer::Kind kind, double scale) {
    return ours.kind == kind && std::abs(ours.scale / scale - 1) < 1e-14;
  };
  using enum Initializer::Kind;
  CHECK(is(specs[0].begins(fans), uniform, theirs.number("default_weight")));
  CHECK(is(specs[1].begins(specs[1].fans), uniform, theirs.number("default_bias")));
  CHECK(is(init::kaiming_uniform(fans), uniform, theirs.number("kaiming_uniform")));
  CHECK(is(init::kaiming_normal(fans), normal, theirs.number("kaiming_normal")));
  CHECK(is(init::xavier_uniform(fans), uniform, theirs.number("xavier_uniform")));
  CHECK(is(init::xavier_normal(fans), normal, theirs.number("xavier_normal")));
}

}  // namespace

TEST_CASE("convolutions: values of PyTorch") {
  SUBCASE("one axis, grouped, split by group") {
    check(Conv1d<split::group, 6, 4,
                 kernel(3, {.stride = 2, .padding = 2, .dilation = 2, .groups = 2})>{},
          {{Axis::batch, 2}, {Axis::channel, 2, 3}, {Axis::width, 9}}, "text");
  }
  SUBCASE("two axes, split by output") {
    check(Conv2d<split::output, 3, 4,
                 kernel({3, 2}, {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 3}})>{},
          {{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 7}, {Axis::width, 5}}, "picture");
  }
  SUBCASE("two axes, split by height") {
    check(Conv2d<split::height, 3, 4,
                 kernel({3, 2}, {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 3}})>{},
          {{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 7}, {Axis::width, 5}}, "picture");
  }
  SUBCASE("padding that keeps extents, split by input") {
    check(Conv2d<split::input, 3, 2, kernel({4, 3}, {.padding = same, .dilation = {1, 2}})>{},
          {{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 4}, {Axis::width, 5}}, "kept");
  }
  SUBCASE("other padding at each side, not split") {
    check(Conv2d<split::none, 2, 3,
                 kernel({2, 3}, {.stride = 3, .padding = sides({0, 2}, {3, 1})})>{},
          {{Axis::batch, 1}, {Axis::channel, 2}, {Axis::height, 4}, {Axis::width, 3}}, "askew");
  }
  SUBCASE("depthwise, split by batch") {
    check<OverBatch>(
        Conv2d<split::none, 3, 6, kernel(3, {.padding = 1, .groups = 3, .bias = false})>{},
        {{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 4}, {Axis::width, 4}}, "depthwise");
  }
  SUBCASE("three axes, split by input") {
    check(Conv3d<split::input, 2, 3,
                 kernel({2, 3, 2},
                        {.stride = {2, 1, 2}, .padding = {1, 0, 1}, .dilation = {1, 1, 2}})>{},
          {{Axis::batch, 1},
           {Axis::channel, 2},
           {Axis::depth, 4},
           {Axis::height, 3},
           {Axis::width, 4}},
          "body");
  }
}

TEST_CASE("transposed convolutions: values of PyTorch") {
  const Shape picture{{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 4}, {Axis::width, 3}};
  constexpr Kernel askew = kernel(
      {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .output_padding = {1, 0}});
  SUBCASE("one axis, grouped, split by group") {
    check_transposed(
        ConvTranspose1d<split::group, 6, 4,
                        kernel(3, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2})>{},
        {{Axis::batch, 2}, {Axis::channel, 2, 3}, {Axis::width, 5}}, "text");
  }
  SUBCASE("with output padding, split by output, by input, by batch and along space") {
    check_transposed(ConvTranspose2d<split::output, 3, 4, askew>{}, picture, "picture");
    check_transposed(ConvTranspose2d<split::input, 3, 4, askew>{}, picture, "picture");
    check_transposed<double, OverBatch>(ConvTranspose2d<split::none, 3, 4, askew>{}, picture,
                                        "picture");
    check_transposed(ConvTranspose2d<split::height, 3, 4, askew>{}, picture, "picture");
    check_transposed(ConvTranspose2d<split::width, 3, 4, askew>{}, picture, "picture");
  }
  SUBCASE("in float and in bf16") {
    check_transposed<float>(ConvTranspose2d<split::output, 3, 4, askew>{}, picture, "picture");
    check_transposed<bf16>(ConvTranspose2d<split::output, 3, 4, askew>{}, picture, "picture");
    check_transposed<bf16>(ConvTranspose2d<split::input, 3, 4, askew>{}, picture, "picture");
    check_transposed<bf16>(ConvTranspose2d<split::height, 3, 4, askew>{}, picture, "picture");
  }
  SUBCASE("without a bias, images twice as large") {
    check_transposed(
        ConvTranspose2d<split::output, 4, 3, kernel(2, {.stride = 2, .bias = false})>{},
        {{Axis::batch, 2}, {Axis::channel, 4}, {Axis::height, 3}, {Axis::width, 3}}, "doubled");
  }
  SUBCASE("with outputs that no tap reaches") {
    check_transposed(
        ConvTranspose2d<split::none, 2, 3, kernel(2, {.stride = 3, .output_padding = 2})>{},
        {{Axis::batch, 1}, {Axis::channel, 2}, {Axis::height, 3}, {Axis::width, 2}}, "gaps");
    check_transposed(
        ConvTranspose2d<split::height, 2, 3, kernel(2, {.stride = 3, .output_padding = 2})>{},
        {{Axis::batch, 1}, {Axis::channel, 2}, {Axis::height, 3}, {Axis::width, 2}}, "gaps");
  }
  SUBCASE("three axes, split by input") {
    check_transposed(
        ConvTranspose3d<split::input, 3, 2,
                        kernel({2, 3, 2}, {.stride = {2, 1, 2}, .padding = {0, 1, 1}})>{},
        {{Axis::batch, 1},
         {Axis::channel, 3},
         {Axis::depth, 2},
         {Axis::height, 3},
         {Axis::width, 2}},
        "body");
  }
}

TEST_CASE("convolutions begin within PyTorch's bounds, whatever they are split by") {
  check_begins(Conv1d<split::group, 24, 96, kernel(7, {.groups = 4})>{},
               {{Axis::batch, 1}, {Axis::channel, 4, 6}, {Axis::width, 9}}, "conv1d");
  check_begins(Conv2d<split::output, 16, 64, kernel({3, 5})>{},
               {{Axis::batch, 1}, {Axis::channel, 16}, {Axis::height, 9}, {Axis::width, 9}},
               "conv2d");
  check_begins(Conv2d<split::input, 16, 64, kernel({3, 5})>{},
               {{Axis::batch, 1}, {Axis::channel, 16}, {Axis::height, 9}, {Axis::width, 9}},
               "conv2d");
  check_begins(ConvTranspose2d<split::none, 16, 64, kernel({3, 5}, {.groups = 2})>{},
               {{Axis::batch, 1}, {Axis::channel, 16}, {Axis::height, 9}, {Axis::width, 9}},
               "transposed2d");
  check_begins(Conv3d<split::none, 12, 36, kernel({3, 1, 5}, {.groups = 6})>{},
               {{Axis::batch, 1},
                {Axis::channel, 12},
                {Axis::depth, 3},
                {Axis::height, 3},
                {Axis::width, 5}},
               "conv3d");
}

TEST_CASE("names of transposed convolutions, and what leaves nothing") {
  using Layer = ConvTranspose2d<split::output, 4, 3,
                                kernel(3, {.stride = 2, .padding = 3, .output_padding = 1})>;
  CHECK(detail::name_of<Layer>() ==
        "ConvTranspose2d<output, 4, 3, 3x3, stride 2x2, padding 3x3, output padding 1x1>");
  const auto images = [](std::size_t height) {
    return Shape{{Axis::batch, 1}, {Axis::channel, 4}, {Axis::height, height}, {Axis::width, 3}};
  };
  CHECK(Layer{}.output_shape(images(4)) ==
        Shape{{Axis::batch, 1}, {Axis::channel, 3}, {Axis::height, 4}, {Axis::width, 2}});
  CHECK_THROWS_WITH_AS(Layer{}.output_shape(images(2)),
                       "the input is a tensor [batch 1, channel 4, height 2, width 3], of whose "
                       "height a transposed convolution with 6 of padding leaves nothing: take a "
                       "larger image or less padding",
                       shape_error);
  CHECK_THROWS_AS(Layer{}.output_shape(images(0)), shape_error);
}
