// Convolutions against values from PyTorch.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/layers/convolution.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;

namespace {

using Everywhere = Ends<Invariant, Invariant>;
using OverBatch = Ends<Sharded<Axis::batch>, Sharded<Axis::batch>>;

/// Sums here have at most some hundred products below 1, so that another order of summation changes
/// them by less than 1e-13.
template <class E = Everywhere, class Layer>
void check(const Layer& layer, const Shape& in, const std::string& name) {
  const witness::Values theirs("layers/convolutions/" + name);
  for (const int ranks : testing::rank_counts({1, 3})) {
    CAPTURE(ranks);
    testing::check_agrees(testing::run_on_witness<double, E>(layer, in, ranks, {80, 81, 83}),
                          theirs, 1e-13);
  }
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

TEST_CASE("convolutions begin within PyTorch's bounds, whatever they are split by") {
  check_begins(Conv1d<split::group, 24, 96, kernel(7, {.groups = 4})>{},
               {{Axis::batch, 1}, {Axis::channel, 4, 6}, {Axis::width, 9}}, "conv1d");
  check_begins(Conv2d<split::output, 16, 64, kernel({3, 5})>{},
               {{Axis::batch, 1}, {Axis::channel, 16}, {Axis::height, 9}, {Axis::width, 9}},
               "conv2d");
  check_begins(Conv2d<split::input, 16, 64, kernel({3, 5})>{},
               {{Axis::batch, 1}, {Axis::channel, 16}, {Axis::height, 9}, {Axis::width, 9}},
               "conv2d");
  check_begins(Conv3d<split::none, 12, 36, kernel({3, 1, 5}, {.groups = 6})>{},
               {{Axis::batch, 1},
                {Axis::channel, 12},
                {Axis::depth, 3},
                {Axis::height, 3},
                {Axis::width, 5}},
               "conv3d");
}
