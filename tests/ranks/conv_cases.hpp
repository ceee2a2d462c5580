#pragma once
// Convolutions by every split, held against the formula on whole tensors: exactly where the data
// are small integers, else within a bound.

#include <doctest/doctest.h>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <vector>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/convolution.hpp"
#include "support/largest_difference.hpp"
#include "unit/backend/convolution_problem.hpp"

namespace testing {

/// An input [batch, channel, space...], the number of output channels, and what the tensors hold.
struct ConvolutionCase {
  std::string what;
  Shape in;
  std::size_t out;
  Data data = Data::integers;
};

using Images = shardwise::Ends<shardwise::Invariant, shardwise::Invariant>;
using BatchOfImages =
    shardwise::Ends<shardwise::Sharded<Axis::batch>, shardwise::Sharded<Axis::batch>>;

/// The whole layer's products.
template <std::size_t Axes>
backend_test::ConvolutionFormula formula_of(const shardwise::detail::ConvolutionForm<Axes>& form,
                                            const Shape& in, std::size_t out) {
  backend_test::ConvolutionFormula f;
  f.channels = {form.groups, in[1].extent() / form.groups, out / form.groups};
  f.call.images = in[0].extent();
  for (std::size_t i = 0; i < Axes; ++i) {
    const auto& w = form.windows[i];
    const std::size_t units = in[2 + i].extent();
    const std::size_t outputs = (w.before + units + w.after - w.reach()) / w.stride + 1;
    f.call.space[3 - Axes + i] = {units, outputs, w.kernel, w.stride, w.dilation, w.before};
  }
  return f;
}

/// How far a sum of `products` products of numbers below 1 may be off in double: 8 eps sqrt(K) |a|
/// |b|, of which each norm is below sqrt(K). Sums of small integers are exact.
inline double bound_of(Data data, std::size_t products) {
  const auto k = static_cast<double>(products);
  return data == Data::integers ? 0 : 8 * 0x1p-52 * std::sqrt(k) * k;
}

/// Two passes at `ranks` ranks, against the formula; calls against the plan.
template <class T, class C, class E, class Use, class Layer>
void check_convolution(const Layer& layer, int ranks, const ConvolutionCase& c) {
  CAPTURE(c.what);
  CAPTURE(ranks);
  const int passes = 2;
  const Data data = c.data;
  const Observed run = observe<Layer, T, C, E, Use>(layer, ranks, {c.in, data, passes});

  const auto formula = formula_of(Layer::form, c.in, c.out);
  const Whole weight = elements(data, number_of_parameter(0), formula.w_size());
  const Whole bias =
      Layer::form.bias ? elements(data, number_of_parameter(1), formula.outputs()) : Whole{};
  CHECK(run["weight"] == weight);
  const std::size_t taps = formula.call.taps();
  const double outputs_off = bound_of(data, formula.channels.in * taps + 1);
  const double inputs_off = bound_of(data, formula.channels.out * taps);
  const double weights_off = bound_of(data, 2 * c.in[0].extent() * formula.call.output_plane());

  Whole dw(weight.size());
  Whole db(formula.outputs());
  for (int pass = 0; pass < passes; ++pass) {
    const std::string number = std::to_string(pass);
    const Whole x = elements(data, number_of_input(pass), formula.x_size());
    const Whole dy = elements(data, number_of_output_gradient(pass), formula.y_size());
    const Whole y = formula.forward(x, weight, bias);
    CHECK(largest_difference(run["output " + number], y) <= outputs_off);
    if constexpr (Use::input_gradient) {
      const Whole dx = formula.input_gradient(dy, weight);
      CHECK(largest_difference(run["input gradient " + number], dx) <= inputs_off);
    }
    dw = formula.weight_gradient(x, dy, dw);
    db = formula.bias_gradient(dy, db);
  }
  CHECK(largest_difference(run["weight gradient"], dw) <= weights_off);
  if constexpr (Layer::form.bias)
    CHECK(largest_difference(run["bias gradient"], db) <= weights_off);
  CHECK(run["evaluated"] == run["output 0"]);
  CHECK(run.copies_are_equal);
  CHECK(difference_from_plan(run) == "");
}

/// All cases at 1 to 8 ranks, where C can have them.
template <class T, class C, class Layer, class E = Images,
          class Use = shardwise::TrainWithInputGradient>
void check_convolutions(const std::vector<ConvolutionCase>& cases) {
  for (const ConvolutionCase& c : cases) {
    const Layer layer(c.in[1].extent(), c.out);
    const int most = std::same_as<C, shardwise::SingleRank> ? 1 : 8;
    for (int ranks = 1; ranks <= most; ++ranks) check_convolution<T, C, E, Use>(layer, ranks, c);
  }
}

/// Pictures of 5 x 4, in channels that are split evenly, unevenly and among more ranks.
inline std::vector<ConvolutionCase> pictures() {
  using enum Axis;
  return {
      {"even", {{batch, 8}, {channel, 8}, {height, 5}, {width, 4}}, 8},
      {"uneven", {{batch, 3}, {channel, 7}, {height, 5}, {width, 4}}, 5},
      {"fewer channels than ranks", {{batch, 1}, {channel, 2}, {height, 5}, {width, 4}}, 3},
      {"channels in grains", {{batch, 2}, {channel, 3, 2}, {height, 5}, {width, 4}}, 4},
      {"an empty batch", {{batch, 0}, {channel, 3}, {height, 5}, {width, 4}}, 2},
      {"reals", {{batch, 3}, {channel, 7}, {height, 5}, {width, 4}}, 5, Data::reals},
  };
}

}  // namespace testing
