// The gradient checker passes every layer of ours, and goes red on a layer with a wrong backward.

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/train/gradient_check.hpp"

using namespace shardwise;

namespace {

using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;
using Feature = Sharded<Axis::feature>;

const Shape rows{{Axis::batch, 5}, {Axis::feature, 7}};
const Shape sequences{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 7}};
const Shape images{{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 2}, {Axis::width, 2}};

/// The report at one rank by type and at 1, 2 and 3 thread ranks, judged by `judge`.
template <Layout Offered = Invariant, Layout Wanted = Invariant, class L, class Judge>
void at_all_rank_counts(const L& layer, const Shape& in, Judge judge) {
  SingleRank alone;
  judge(check_gradients<Offered, Wanted>(alone, layer, in), 0);
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      judge(check_gradients<Offered, Wanted>(ranks, layer, in), size);
    });
  }
}

template <Layout Offered = Invariant, Layout Wanted = Invariant, class L>
void passes(const L& layer, const Shape& in) {
  at_all_rank_counts<Offered, Wanted>(layer, in, [](const GradientReport& report, int size) {
    const std::string name = detail::name_of<L>();
    INFO(name << " at " << size << ": " << report.largest_error << " at " << report.where);
    CHECK(report.passed());
    CHECK(report.largest_error < 1e-8);
  });
}

/// y = x², with a slope of x.
struct WrongSlope : KeepsLayout {
  static constexpr Saves saves = Saves::input;

  template <class Frame, class X, class Y>
  void forward(Frame&, X x, Y y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * x[i];
  }
  template <class Frame, class X, class DY, class DX>
  void backward(Frame&, X x, DY dy, DX dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = x[i] * dy[i];
  }
};

/// y = x + b with the gradient of b divided by the number of ranks.
struct WrongShare : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  template <Layout In>
  using parameters = std::tuple<ParameterUse<Invariant, Invariant>>;
  std::array<ParameterSpec, 1> parameter_specs(const Shape& in) const {
    return {ParameterSpec{"shift", Shape{{Axis::output, in.back().extent()}}}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    const auto [shift] = frame.parameters();
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + shift[i % shift.size()];
  }
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, DY dy, DX dx) const {
    const auto [gradient] = frame.gradients();
    if (frame.write() == Write::replace) std::fill_n(gradient.data(), gradient.size(), 0.0);
    for (std::size_t i = 0; i < dy.size(); ++i) {
      dx[i] = dy[i];
      gradient[i % gradient.size()] += dy[i] / dy.place().size;
    }
  }
};

/// A gradient that is no number.
struct NoNumber : WrongSlope {
  template <class Frame, class X, class DY, class DX>
  void backward(Frame&, X, DY dy, DX dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = std::nan("");
  }
};

/// A backward that is wrong on every rank but the first.
struct WrongElsewhere : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  template <class Frame, class X, class Y>
  void forward(Frame&, X x, Y y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = 3 * x[i];
  }
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY dy, DX dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = (dy.place().rank == 0 ? 3 : 7) * dy[i];
  }
};

/// A gradient that each rank has of its own samples only, and that is said to be whole.
struct ForgottenDebt : WrongShare {
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, DY dy, DX dx) const {
    const auto [gradient] = frame.gradients();
    if (frame.write() == Write::replace) std::fill_n(gradient.data(), gradient.size(), 0.0);
    for (std::size_t i = 0; i < dy.size(); ++i) {
      dx[i] = dy[i];
      gradient[i % gradient.size()] += dy[i];
    }
  }
};

struct Block : Sequential<ColumnParallelLinear<7, 5>, Gelu, RowParallelLinear<5, 7>> {};

}  // namespace

TEST_CASE("linear layers of every split pass") {
  passes(ColumnParallelLinear<7, 4>{}, rows);
  passes<Invariant, Feature>(ColumnParallelLinear<7, 4>{}, rows);
  passes<Feature, Feature>(ColumnParallelLinear<7, 2>{}, rows);
  passes(RowParallelLinear<7, 4>{}, rows);
  passes<Feature, Batch>(RowParallelLinear<7, 4>{}, rows);
  passes<Sequence, Sequence>(RowParallelLinear<7, 4>{}, sequences);
  passes(Linear<split::none, 7, 4>{}, rows);
  passes<Batch, Batch>(Linear<split::none, 7, 4>{}, rows);
  passes<Sequence, Invariant>(Linear<split::none, 7, 4>{}, sequences);
}

TEST_CASE("activations, dropout and flatten pass") {
  passes(Relu{}, rows);
  passes<Batch, Feature>(Gelu{}, rows);
  passes(GeluTanh{}, rows);
  passes<Feature, Feature>(Silu{}, rows);
  passes(Tanh{}, rows);
  passes(Sigmoid{}, rows);
  passes(Dropout<1, 4>{}, rows);
  passes<Sequence, Sequence>(Dropout<1, 4>{}, sequences);
  passes<Sharded<Axis::channel>, Feature>(Flatten{}, images);
  passes(Flatten{}, images);
}

TEST_CASE("compositions pass") {
  passes(Sequential<RowParallelLinear<7, 5>, Relu, Dropout<1, 3>, RowParallelLinear<5, 3>>{}, rows);
  passes<Sequence, Sequence>(Residual<Block>{}, sequences);
  passes<Sequence, Sequence>(Repeat<2, Residual<Block>>{}, sequences);
  passes(Repeat<2, Residual<Block>>{}, rows);
}

TEST_CASE("a wrong slope is found at every number of ranks, with its place") {
  at_all_rank_counts(WrongSlope{}, rows, [](const GradientReport& report, int) {
    CHECK_FALSE(report.passed());
    CHECK(report.checked == 35);
    CHECK(report.where.find("input, element ") == 0);
  });
}

TEST_CASE("a parameter's gradient that is divided by the number of ranks is found") {
  at_all_rank_counts(WrongShare{}, rows, [](const GradientReport& report, int size) {
    CHECK(report.passed() == (size <= 1));
    if (size > 1) CHECK(report.where.find("shift, element ") == 0);
  });
}

TEST_CASE("a gradient that is no number is found") {
  at_all_rank_counts(NoNumber{}, rows,
                     [](const GradientReport& report, int) { CHECK_FALSE(report.passed()); });
}

TEST_CASE("every rank reports what any rank found") {
  const auto reports = [](auto check) {
    std::vector<GradientReport> of(3);
    run_ranks(3, [&](ThreadCommunicator& ranks) {
      of[static_cast<std::size_t>(ranks.rank())] = check(ranks);
    });
    for (const GradientReport& report : of) {
      CHECK(!report.passed());
      CHECK(report.largest_error == of[0].largest_error);
      CHECK(report.where == of[0].where);
    }
    return of[0].where;
  };
  const Shape one{{Axis::batch, 1}, {Axis::feature, 4}};
  CHECK(reports([&](auto& ranks) {
          return check_gradients(ranks, WrongElsewhere{}, one);
        }).starts_with("input, element "));
  CHECK(reports([&](auto& ranks) {
          return check_gradients<Batch, Batch>(ranks, ForgottenDebt{}, one);
        }).starts_with("shift, element "));
}
