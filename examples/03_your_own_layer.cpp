// A layer of your own. It names an exchange inside it as a redistribution.
//
//            rank 0              rank 1
//     x   [ features ... | ... features ]     Sharded<feature>
//            Σ of mine           Σ of mine    summands: Partial
//              └──── all-reduce ────┘         the exchange: Partial -> Replicated
//     y = x - (Σ of all) / features
//
// The layer sees no communicator. The model runs its exchange, transposes it for backward and puts
// it into the plan. `check_layer` compares the layer on many ranks with itself on one, what it
// sends with the plan, and its backward with finite differences of its forward.
//
// test:
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/shardwise.hpp"
#include "shardwise/testing/layer_check.hpp"
#include "support/print_plan.hpp"

namespace sw = shardwise;

// begin: layer
/// y = x - mean of x over the features of its row, which may be split.
struct Centre : sw::KeepsLayout {
  static constexpr sw::Saves saves = sw::Saves::nothing;

  // Sums over a part of the features are summands, and every rank uses the total for its own part.
  template <sw::Layout In>
  using exchanges = std::tuple<sw::Exchange<
      std::conditional_t<std::same_as<In, sw::Sharded<sw::Axis::feature>>,
                         sw::Redistribute<sw::Partial, sw::Replicated>, sw::Redistribute<In, In>>>>;
  constexpr std::array<sw::Shape, 1> exchange_shapes(const sw::Shape& in) const {
    return {in.without_back()};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    auto mine = frame.template exchange_input<0>();
    sum_rows(x, mine.writable());
    subtract_mean(x, frame.template exchange<0>(std::move(mine)).view(), y);
  }

  // dx = dy - mean of dy: the transpose is the layer itself, and its exchange runs as the adjoint.
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, sw::Nothing, DY dy, DX dx) const {
    auto mine = frame.template adjoint_input<0>();
    sum_rows(dy, mine.writable());
    auto total = frame.template exchange_adjoint<0>(std::move(mine));
    if constexpr (Frame::input_gradient) subtract_mean(dy, total.view(), dx);
  }

 private:
  template <class X, class Sums>
  static void sum_rows(X x, Sums sums) {
    for (std::size_t r = 0; r < x.rows(); ++r) {
      sums[r] = 0;
      for (std::size_t c = 0; c < x.columns(); ++c) sums[r] += x[r * x.columns() + c];
    }
  }
  template <class X, class Sums, class Y>
  static void subtract_mean(X x, Sums sums, Y y) {
    using T = typename Y::value_type;
    const auto features = static_cast<typename Sums::value_type>(x.global().back().extent());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = static_cast<T>(x[i] - sums[i / x.columns()] / features);
  }
};
// end: layer

// begin: model
/// Between the linear layers features are split, and are not moved.
struct Mlp : sw::Sequential<sw::ColumnParallelLinear<6, 7>, Centre, sw::Gelu,
                            sw::RowParallelLinear<7, 3>> {};

/// The same without it.
struct Plain
    : sw::Sequential<sw::ColumnParallelLinear<6, 7>, sw::Gelu, sw::RowParallelLinear<7, 3>> {};

// The layer sums one number per row, forward and backward.
constexpr std::size_t rows = 5;
static_assert(sw::plan<Mlp, 3>(sw::batch{rows}).forward ==
              sw::CollectiveList{sw::all_reduce(rows), sw::all_reduce(rows * 3)});
static_assert(sw::plan<Mlp, 3>(sw::batch{rows}).backward ==
              sw::CollectiveList{sw::all_reduce(rows)});
// end: model

int main() try {
  std::printf("without the layer, ");
  example::print_plan(sw::plan<Plain, 3>(sw::batch{rows}));
  std::printf("with it, ");
  example::print_plan(sw::plan<Mlp, 3>(sw::batch{rows}));

  // begin: check
  // The layer with features split on 1, 2 and 3 ranks equals one rank exactly, on integers. Then
  // the whole model: after GELU numbers are not integers, so another order of sums rounds
  // differently.
  using Features = sw::Sharded<sw::Axis::feature>;
  const sw::Shape in{{sw::Axis::batch, rows}, {sw::Axis::feature, 6}};
  sw::CheckReport report = sw::check_layer<Features, Features>(Centre{}, in, {.ranks = {1, 2, 3}});
  report.add(sw::check_layer(Mlp{}, in, {.ranks = {1, 2, 3}, .exact = false}));
  // end: check
  std::printf("%zu numbers checked: %s\n%s", report.checked, report.passed() ? "good" : "WRONG",
              report.text().c_str());
  return report.passed() ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "03_your_own_layer: %s\n", e.what());
  return 1;
}
