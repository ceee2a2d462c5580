// The checks for layers of users pass right ones and name wrong ones, each with what is wrong.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/testing/layer_check.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::contains;

namespace {

using Batch = Sharded<Axis::batch>;
using Feature = Sharded<Axis::feature>;

const Shape rows{{Axis::batch, 3}, {Axis::feature, 7}};
const Shape images{{Axis::batch, 1}, {Axis::channel, 2}, {Axis::height, 5}, {Axis::width, 3}};

/// y = 3 x, and backward forgets the 3.
struct ForgetsFactor : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  template <class Frame, class X, class Y>
  void forward(Frame&, X x, Y y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = 3 * x[i];
  }
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY dy, DX dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = dy[i];
  }
};

/// A column-parallel layer that says that its input is Invariant: its gradient would then be whole,
/// but each rank's is a summand.
struct WrongDual : ColumnParallelLinear<7, 5> {
  template <Layout Wanted>
  using desired_input_layout = Invariant;
  template <Layout Offered, Layout Wanted>
  using input_layout = Invariant;
};

/// y = Σ x over features, + b on every rank. It uses b as Replicated; Partial would be true if only
/// the first rank added it.
struct BiasOnEveryRank : TakesAndGives<Feature, Partial> {
  static constexpr Saves saves = Saves::input;

  template <Layout In>
  using parameters = std::tuple<ParameterUse<Invariant, Replicated>>;

  Shape output_shape(const Shape& in) const { return in.with_back({Axis::feature, 1}); }
  std::array<ParameterSpec, 1> parameter_specs(const Shape&) const {
    return {ParameterSpec{"bias", Shape{{Axis::output, 1}}}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    for (std::size_t r = 0; r < x.rows(); ++r) {
      y[r] = std::get<0>(frame.parameters())[0];
      for (std::size_t c = 0; c < x.columns(); ++c) y[r] += x[r * x.columns() + c];
    }
  }
  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, X x, DY dy, DX dx) const {
    double& gradient = std::get<0>(frame.gradients())[0];
    if (frame.write() == Write::replace) gradient = 0;
    for (std::size_t r = 0; r < x.rows(); ++r) {
      gradient += dy[r];
      std::fill_n(dx.data() + r * x.columns(), x.columns(), dy[r]);
    }
  }
};

/// y = x + b, where the gradient of b on a share of the rows is a summand. Told to forget it, it
/// says that this is whole, or that each batch begins anew.
enum Forgets : int { nothing, debt, batches };
template <int Forgotten>
struct Shift : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  template <Layout In>
  using parameters = std::tuple<
      ParameterUse<Invariant, std::conditional_t<Forgotten == debt || std::same_as<In, Invariant>,
                                                 Invariant, Replicated>>>;
  std::array<ParameterSpec, 1> parameter_specs(const Shape&) const {
    return {ParameterSpec{"shift", Shape{{Axis::output, 1}}}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + std::get<0>(frame.parameters())[0];
  }
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, DY dy, DX dx) const {
    double& gradient = std::get<0>(frame.gradients())[0];
    if (frame.write() == Write::replace || Forgotten == batches) gradient = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) gradient += dy[i];
    if constexpr (Frame::input_gradient) std::copy_n(dy.data(), dy.size(), dx.data());
  }
};

/// y = x - Σ x over the features that are here. Told to, it exchanges the sums; twice, if so told.
template <int Exchanges>
struct Centre : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  template <Layout In>
  using exchanges = std::tuple<Exchange<std::conditional_t<
      std::same_as<In, Feature>, Redistribute<Partial, Replicated>, Redistribute<In, In>>>>;
  std::array<Shape, 1> exchange_shapes(const Shape& in) const { return {in.without_back()}; }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    for (int i = 1; i < Exchanges; ++i)
      frame.template exchange<0>(sums(x, frame.template exchange_input<0>()));
    auto mine = sums(x, frame.template exchange_input<0>());
    if constexpr (Exchanges == 0) {
      subtract(x, mine.view(), y);
    } else {
      subtract(x, frame.template exchange<0>(std::move(mine)).view(), y);
    }
  }
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, DY dy, DX dx) const {
    subtract(dy,
             frame.template exchange_adjoint<0>(sums(dy, frame.template adjoint_input<0>())).view(),
             dx);
  }

 private:
  template <class X, class Sums>
  static Sums sums(X x, Sums sums) {
    auto to = sums.writable();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = 0;
    for (std::size_t i = 0; i < x.size(); ++i) to[i / x.columns()] += x[i];
    return sums;
  }
  template <class X, class Sums, class Y>
  static void subtract(X x, Sums sums, Y y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] - sums[i / x.columns()];
  }
};

/// y = x but for a rounding error that is another on each rank.
struct OfItsOwnRank : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + frame.place().rank * 0x1p-50;
  }
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY dy, DX dx) const {
    std::copy_n(dy.data(), dy.size(), dx.data());
  }
};

/// y = x, and keeps the sum of all that it has seen; on a share of the rows that of its own alone.
struct SumOfOwnRows : OfItsOwnRank {
  struct Kept {
    Tensor<double, Invariant> sum;

    template <class F>
    void visit_buffers(F&& f) {
      f("sum", sum.view());
    }
  };

  template <class Frame>
  Kept make_state(Frame& frame) const {
    return {Tensor<double, Invariant>(Shape{{Axis::output, 1}}, frame.place())};
  }
  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    std::copy_n(x.data(), x.size(), y.data());
    for (std::size_t i = 0; i < x.size(); ++i) frame.state().sum[0] += x[i];
  }
};

/// Gives up on the second of three ranks.
struct Throws : ForgetsFactor {
  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    if (frame.place() == Place{1, 3}) throw argument_error("this rank will not");
    ForgetsFactor::forward(frame, x, y);
  }
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY dy, DX dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = 3 * dy[i];
  }
};

const LayerChecks bounded{.exact = false, .gradients = 3};

/// The only failure of a layer, or all of them.
template <Layout Offered = Invariant, Layout Wanted = Invariant, class L>
std::string failure_of(const L& layer, const Shape& in,
                       const LayerChecks& checks = {.gradients = 3}) {
  const CheckReport report = check_layer<Offered, Wanted>(layer, in, checks);
  CHECK_FALSE(report.passed());
  CHECK_THROWS_AS(report.require(), check_error);
  INFO(report.text());
  return report.text();
}

template <Layout Offered = Invariant, Layout Wanted = Invariant, class L>
void passes(const L& layer, const Shape& in, const LayerChecks& checks = {.gradients = 3}) {
  const CheckReport report = check_layer<Offered, Wanted>(layer, in, checks);
  CHECK_MESSAGE(report.passed(), report.text());
  CHECK(report.text() == "");
  CHECK(report.checked > 5 * in.elements());
}

struct Block : Sequential<ColumnParallelLinear<7, 5>, Gelu, RowParallelLinear<5, 7>> {};

}  // namespace

TEST_CASE("layers of ours pass, and a right one of a user's") {
  passes(ColumnParallelLinear<7, 5>{}, rows);
  passes<Feature, Batch>(RowParallelLinear<7, 5>{}, rows);
  passes<Batch, Batch>(Linear<split::none, 7, 5>{}, rows);
  passes<Feature, Feature>(Centre<1>{}, rows);
  passes<Batch, Batch>(Shift<nothing>{}, rows);
  passes<Batch, Batch>(BatchNorm<7>{}, rows, bounded);
  CHECK(check_layer<Batch, Batch, Train>(Shift<nothing>{}, rows).passed());
  passes(Conv2d<split::height, 2, 3, kernel(3, {.padding = 1})>{}, images);
}

TEST_CASE("sums of what is no integer agree up to rounding alone") {
  passes(Residual<Block>{}, rows, bounded);
  passes<Feature, Feature>(LayerNorm<7>{}, rows, bounded);
  passes<Batch, Batch>(Dropout<1, 4>{}, rows, bounded);
  LayerChecks none = bounded;
  none.bound = 0;
  none.ranks = {4};
  CHECK_FALSE(check_layer(Residual<Block>{}, rows, none).passed());
}

TEST_CASE("a factor that backward forgets is found on one rank") {
  const std::string text = failure_of(ForgetsFactor{}, rows);
  check_mentions(text,
                 {"ForgetsFactor on 1 rank(s), Invariant -> Invariant: its backward is not that of "
                  "its forward. In double, input, element ",
                  "backward gives"});
}

TEST_CASE("a layout whose dual is another than backward gives is found") {
  const std::string text = failure_of(WrongDual{}, rows);
  check_mentions(
      text, {"WrongDual on 2 rank(s), Invariant -> Invariant: the gradient of the input is not "
             "that of one rank alone, on integers: element ",
             "is Replicated, and its gradient Partial."});
}

TEST_CASE("a bias that every rank adds is found") {
  const std::string text = failure_of(BiasOnEveryRank{}, rows);
  check_mentions(text,
                 {"BiasOnEveryRank on 2 rank(s), Invariant -> Invariant: the output is not that of "
                  "one rank alone, on integers: element ",
                  "what only one may add to a Partial"});
}

TEST_CASE("a parameter's gradient that is not summed is found") {
  const std::string text = failure_of<Batch, Batch>(Shift<debt>{}, rows);
  check_mentions(text,
                 {"Shift<1> on 2 rank(s), Sharded<batch> -> Sharded<batch>: the gradient of shift "
                  "is not that of one rank alone",
                  "Is its ParameterUse true?"});
}

TEST_CASE("a batch that forgets the one before is found on one rank") {
  CHECK(contains(
      failure_of(Shift<batches>{}, rows),
      "a second batch of a step, which is worth nothing, changes the gradient of shift on one "
      "rank alone. Does backward ask frame.write()"));
}

TEST_CASE("what is not the same on all ranks is found, however small") {
  CHECK(contains(
      failure_of(OfItsOwnRank{}, rows, bounded),
      "OfItsOwnRank on 2 rank(s), Invariant -> Invariant: the output on rank 1 is not that of "
      "rank 0 bit by bit, and all should hold the same."));
}

TEST_CASE("a buffer that knows of a rank's own rows alone is found") {
  CHECK(contains(
      failure_of<Batch, Batch>(SumOfOwnRows{}, rows),
      "SumOfOwnRows on 2 rank(s), Sharded<batch> -> Sharded<batch>: sum is not that of one rank "
      "alone, on integers: element 0 is "));
}

TEST_CASE("an exchange that is forgotten, or made twice, is found") {
  const std::string forgotten = failure_of<Feature, Feature>(Centre<0>{}, rows);
  CHECK(contains(forgotten,
                 "Centre<0> on 1 rank(s), Sharded<feature> -> Sharded<feature>: it sends other "
                 "than planned, in forward: collective 0 is nothing more, and planned is "
                 "all_reduce(3 x float64)"));
  const std::string twice = failure_of<Feature, Feature>(Centre<2>{}, rows);
  CHECK(contains(twice,
                 "in forward: collective 1 is all_reduce(3 x float64), and planned is nothing"));
}

TEST_CASE("what a rank throws is a failure, with rank and layer") {
  const std::string text = failure_of(Throws{}, rows);
  check_mentions(text, {"Throws on 3 rank(s): rank 1: ", "this rank will not"});
}

TEST_CASE("all ranks get the report of the first that has found something") {
  std::array<CheckReport, 3> reports;
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    reports[static_cast<std::size_t>(ranks.rank())] =
        check_layer(ranks, WrongDual{}, rows, {.gradients = 1});
  });
  CHECK_FALSE(reports[0].passed());
  for (const CheckReport& report : reports) CHECK(report.failures == reports[0].failures);
}

TEST_CASE("a report of nothing has not passed") {
  CHECK_FALSE(CheckReport{}.passed());
  CHECK(CheckReport{}.text() == "nothing was checked");
  CHECK_THROWS_AS(CheckReport{}.require(), check_error);
}
