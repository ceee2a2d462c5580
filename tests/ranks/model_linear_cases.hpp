#pragma once
// A linear layer of one dtype, by every split and communicator, held against the formula on whole
// tensors. All data are small integers, so every comparison is exact.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/linear.hpp"

namespace testing {

/// y, dx, dW and db of a linear layer on whole tensors, element by element.
struct LinearFormula {
  std::size_t rows, in, out;
  Whole weight = {}, bias = {};

  Whole output(const Whole& x) const {
    Whole y(rows * out);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t o = 0; o < out; ++o) {
        y[r * out + o] = bias.empty() ? 0 : bias[o];
        for (std::size_t i = 0; i < in; ++i) y[r * out + o] += x[r * in + i] * weight[o * in + i];
      }
    return y;
  }
  Whole input_gradient(const Whole& dy) const {
    Whole dx(rows * in);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t o = 0; o < out; ++o)
        for (std::size_t i = 0; i < in; ++i) dx[r * in + i] += dy[r * out + o] * weight[o * in + i];
    return dx;
  }
  void add_weight_gradient(Whole& dw, const Whole& x, const Whole& dy) const {
    dw.resize(out * in);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t o = 0; o < out; ++o)
        for (std::size_t i = 0; i < in; ++i) dw[o * in + i] += dy[r * out + o] * x[r * in + i];
  }
  void add_bias_gradient(Whole& db, const Whole& dy) const {
    db.resize(out);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t o = 0; o < out; ++o) db[o] += dy[r * out + o];
  }
};

/// An input, the last axis of which is features, and the number of outputs.
struct LinearCase {
  std::string what;
  Shape in;
  std::size_t out;
};

inline std::vector<LinearCase> linear_cases() {
  using enum Axis;
  return {
      {"even", {{batch, 8}, {feature, 8}}, 8},
      {"uneven", {{batch, 5}, {feature, 7}}, 5},
      {"fewer features than ranks", {{batch, 1}, {feature, 2}}, 3},
      {"features in grains", {{batch, 3}, {feature, 3, 2}}, 4},
      {"three axes", {{batch, 3}, {sequence, 2}, {feature, 5}}, 3},
      {"an empty batch", {{batch, 0}, {feature, 7}}, 5},
      {"no inputs", {{batch, 3}, {feature, 0}}, 4},
      {"no outputs", {{batch, 3}, {feature, 4}}, 0},
  };
}

inline constexpr int linear_passes = 2;
inline constexpr Data linear_data = Data::integers;

/// Which tensors a run has.
struct LinearTensors {
  bool bias, input_gradient, parameter_gradients;
};

/// The passes of a run against the formula; its calls against the plan.
inline void check_linear_run(const Observed& run, const LinearCase& c, const LinearTensors& has) {
  LinearFormula formula{c.in.rows(), c.in.back().extent(), c.out};
  formula.weight = elements(linear_data, number_of_parameter(0), formula.out * formula.in);
  if (has.bias) formula.bias = elements(linear_data, number_of_parameter(1), formula.out);
  CHECK(run["weight"] == formula.weight);

  Whole dw(formula.weight.size());
  Whole db(formula.out);
  for (int pass = 0; pass < linear_passes; ++pass) {
    const std::string number = std::to_string(pass);
    const Whole x = elements(linear_data, number_of_input(pass), formula.rows * formula.in);
    const Whole dy =
        elements(linear_data, number_of_output_gradient(pass), formula.rows * formula.out);
    CHECK(run["output " + number] == formula.output(x));
    if (has.input_gradient) CHECK(run["input gradient " + number] == formula.input_gradient(dy));
    formula.add_weight_gradient(dw, x, dy);
    formula.add_bias_gradient(db, dy);
  }
  if (has.parameter_gradients) {
    CHECK(run["weight gradient"] == dw);
    if (has.bias) CHECK(run["bias gradient"] == db);
  }
  CHECK(run["evaluated"] == run["output 0"]);
  CHECK(run.copies_are_equal);
  CHECK(difference_from_plan(run) == "");
}

/// Two passes at `ranks` ranks.
template <class T, class C, class E, class Use, class Layer>
void check_linear(const Layer& layer, int ranks, const LinearCase& c, bool has_bias = true) {
  CAPTURE(c.what);
  CAPTURE(ranks);
  check_linear_run(observe<Layer, T, C, E, Use>(layer, ranks, {c.in, linear_data, linear_passes}),
                   c, {has_bias, Use::input_gradient, Use::trains});
}

/// All cases at all rank counts that C can have.
template <class T, class C, class S,
          class E = shardwise::Ends<shardwise::Invariant, shardwise::Invariant>,
          class Use = shardwise::TrainWithInputGradient, bool Bias = true>
void check_all_linear() {
  using shardwise::dynamic;
  for (const LinearCase& c : linear_cases()) {
    const shardwise::Linear<S, dynamic, dynamic, Bias> layer(c.in.back().extent(), c.out);
    if constexpr (std::same_as<C, shardwise::SingleRank>) {
      check_linear<T, C, E, Use>(layer, 1, c, Bias);
    } else {
      for (const int ranks : rank_counts({1, 2, 3, 4, 5, 8}))
        check_linear<T, C, E, Use>(layer, ranks, c, Bias);
    }
  }
}

template <class T, class C>
void check_every_split() {
  SUBCASE("not split") { check_all_linear<T, C, shardwise::split::none>(); }
  SUBCASE("by output") { check_all_linear<T, C, shardwise::split::output>(); }
  SUBCASE("by input") { check_all_linear<T, C, shardwise::split::input>(); }
}

}  // namespace testing
