#pragma once
// Convolutions by every split, held against the formula on whole tensors. All data are small
// integers, so every comparison is exact.

#include <doctest/doctest.h>

#include <concepts>
#include <cstddef>
#include <string>
#include <vector>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/convolution.hpp"
#include "unit/backend/convolution_problem.hpp"

namespace testing {

/// An input [batch, channel, space...] and the number of output channels.
struct ConvolutionCase {
  std::string what;
  Shape in;
  std::size_t out;
};

using Images = shardwise::Ends<shardwise::Invariant, shardwise::Invariant>;
using BatchOfImages =
    shardwise::Ends<shardwise::Sharded<Axis::batch>, shardwise::Sharded<Axis::batch>>;

/// The whole layer's products.
template <std::size_t Axes>
backend_test::ConvolutionFormula formula_of(const shardwise::ConvolutionForm<Axes>& form,
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

/// Two passes at `ranks` ranks, against the formula; calls against the plan.
template <class T, class C, class E, class Use, class Layer>
void check_convolution(const Layer& layer, int ranks, const ConvolutionCase& c) {
  CAPTURE(c.what);
  CAPTURE(ranks);
  const int passes = 2;
  const Data data = Data::integers;
  const Observed run = observe<Layer, T, C, E, Use>(layer, ranks, {c.in, data, true, passes});

  const auto formula = formula_of(Layer::form, c.in, c.out);
  const Whole weight = elements(data, number_of_parameter(0), formula.w_size());
  const Whole bias =
      Layer::form.bias ? elements(data, number_of_parameter(1), formula.outputs()) : Whole{};
  CHECK(run["weight"] == weight);

  Whole dw(weight.size());
  Whole db(formula.outputs());
  for (int pass = 0; pass < passes; ++pass) {
    const std::string number = std::to_string(pass);
    const Whole x = elements(data, number_of_input(pass), formula.x_size());
    const Whole dy = elements(data, number_of_output_gradient(pass), formula.y_size());
    CHECK(run["output " + number] == formula.forward(x, weight, bias));
    if constexpr (Use::input_gradient)
      CHECK(run["input gradient " + number] == formula.input_gradient(dy, weight));
    dw = formula.weight_gradient(x, dy, dw);
    db = formula.bias_gradient(dy, db);
  }
  CHECK(run["weight gradient"] == dw);
  if constexpr (Layer::form.bias) CHECK(run["bias gradient"] == db);
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
  };
}

}  // namespace testing
