// How parameters begin: within bounds that PyTorch states, the same at every number of ranks.

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "support/largest_difference.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using testing::any_ranks;
using testing::Observed;
using testing::rank_counts;
using testing::Ranks;
using testing::Whole;

namespace {

/// Parameters as they begin, put together from all ranks.
template <class T = double, class Architecture>
Observed begun(const Architecture& architecture, int ranks, Seed seed = {1}) {
  testing::Recorder recorder(ranks);
  testing::run_on_ranks(ranks, [&](Ranks& c) {
    Model<Architecture, Context<T, Reference, Ranks>, Ends<Invariant, Invariant>, ForwardOnly>
        model(architecture, c, seed);
    model.visit_parameters([&](auto& p) { recorder.put(p.name, p.value); });
    recorder.put_values(place_of(c), model.values().size());
  });
  return recorder.take();
}

double largest(const Whole& values) {
  testing::Largest found;
  for (const double v : values) found.see(std::abs(v));
  return found;
}

double deviation(const Whole& values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

/// Uniform on [-bound, bound): none beyond, and with this many numbers some close to it. The
/// tolerance is that of the witness's own rounding.
void check_uniform(const Whole& values, double bound) {
  CHECK(largest(values) <= bound * (1 + 1e-12));
  CHECK(largest(values) >= bound * (1 - 20.0 / static_cast<double>(values.size())));
  // Six standard errors of a standard deviation.
  const double expected = bound / std::sqrt(3.0);
  CHECK(std::abs(deviation(values) / expected - 1) <
        6 / std::sqrt(2 * static_cast<double>(values.size())));
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  CHECK(std::abs(mean) < 6 * expected / std::sqrt(static_cast<double>(values.size())));
}

void check_normal(const Whole& values, double sigma) {
  CHECK(std::abs(deviation(values) / sigma - 1) <
        6 / std::sqrt(2 * static_cast<double>(values.size())));
  CHECK(largest(values) > 2.5 * sigma);
  CHECK(largest(values) < 6.7 * sigma);
}

}  // namespace

TEST_CASE("rules give the bounds that PyTorch passes to its generators") {
  for (const witness::Values& b : witness::Values("layers/initialisers/linear").groups()) {
    const Fans fans{static_cast<std::size_t>(b.number("in")),
                    static_cast<std::size_t>(b.number("out"))};
    const auto check = [&](init::Rule rule, const char* name) {
      CHECK(rule(fans).scale == doctest::Approx(b.number(name)).epsilon(1e-14));
    };
    check(init::torch_linear, "default_weight");
    check(init::torch_linear, "default_bias");
    check(init::kaiming_uniform, "kaiming_uniform");
    check(init::kaiming_normal, "kaiming_normal");
    check(init::xavier_uniform, "xavier_uniform");
    check(init::xavier_normal, "xavier_normal");
  }
  CHECK(init::torch_linear({0, 5}).scale == 0);  // nothing to draw, and no division by zero
  CHECK(init::ones({3, 5}).scale == 1);
  CHECK(init::zeros({3, 5}).scale == 0);
}

TEST_CASE("weights lie within the bounds of the global fans, at any number of ranks") {
  for (const witness::Values& b : witness::Values("layers/initialisers/linear").groups()) {
    const auto in = static_cast<std::size_t>(b.number("in"));
    const auto out = static_cast<std::size_t>(b.number("out"));
    CAPTURE(out);
    CAPTURE(in);
    for (const int ranks : rank_counts({1, 4})) {
      CAPTURE(ranks);
      const ColumnParallelLinear<dynamic, dynamic> column(in, out);
      const RowParallelLinear<dynamic, dynamic> row(in, out);
      check_uniform(begun(column, ranks)["weight"], b.number("default_weight"));
      check_uniform(begun(row, ranks)["weight"], b.number("default_weight"));
      CHECK(largest(begun(row, ranks)["bias"]) <= b.number("default_bias") * (1 + 1e-12));
      CHECK(largest(begun(row, ranks)["bias"]) > b.number("default_bias") / 2);
      const auto with = [&](init::Rule rule) {
        return begun(row.initialized_by(rule), ranks)["weight"];
      };
      check_uniform(with(init::kaiming_uniform), b.number("kaiming_uniform"));
      check_uniform(with(init::xavier_uniform), b.number("xavier_uniform"));
      check_normal(with(init::kaiming_normal), b.number("kaiming_normal"));
      check_normal(with(init::xavier_normal), b.number("xavier_normal"));
    }
  }
}

TEST_CASE("a layer begins the same however it is split and over however many ranks") {
  const auto one = begun(Linear<split::none, 33, 20>{}, 1);
  for (const int ranks : rank_counts({1, 2, 3, 5, 8})) {
    CAPTURE(ranks);
    CHECK(begun(Linear<split::none, 33, 20>{}, ranks).tensors == one.tensors);
    CHECK(begun(ColumnParallelLinear<33, 20>{}, ranks).tensors == one.tensors);
    CHECK(begun(RowParallelLinear<33, 20>{}, ranks).tensors == one.tensors);
    const auto normal = [&](int count) {
      return begun(RowParallelLinear<33, 20>{}.initialized_by(init::kaiming_normal, init::ones),
                   count)
          .tensors;
    };
    CHECK(normal(ranks) == normal(1));
    CHECK(normal(ranks).at("bias") == Whole(20, 1.0));
  }
  CHECK(begun(Linear<split::none, 33, 20>{}, 1, Seed{2}).tensors != one.tensors);
}

TEST_CASE("all dtypes begin from the same numbers, each rounded once") {
  const auto exact = begun<double>(ColumnParallelLinear<33, 20>{}, any_ranks(3))["weight"];
  const auto rounded = begun<float>(ColumnParallelLinear<33, 20>{}, any_ranks(3))["weight"];
  const auto coarse = begun<bf16>(ColumnParallelLinear<33, 20>{}, any_ranks(3))["weight"];
  bool all = true;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    all = all && rounded[i] == static_cast<double>(static_cast<float>(exact[i]));
    all = all && coarse[i] == static_cast<double>(bf16(static_cast<float>(exact[i])));
  }
  CHECK(all);
}

TEST_CASE("no two parameters begin with the same numbers") {
  using Square = ColumnParallelLinear<16, 16>;
  const auto o = begun(Sequential<Square, Relu, Square, Repeat<2, Square>>{}, any_ranks(2));
  std::set<Whole> beginnings;
  for (const auto& [name, values] : o.tensors)
    beginnings.insert(Whole(values.begin(), values.begin() + 16));
  CHECK(o.tensors.size() == 8);
  CHECK(beginnings.size() == 8);
}

TEST_CASE("a redistribution that is put in changes no weight") {
  using Column = ColumnParallelLinear<12, 7>;
  using Row = RowParallelLinear<7, 5>;
  const auto without = begun(Sequential<Column, Relu, Row>{}, any_ranks(3));
  const auto with = begun(Sequential<To<Sharded<Axis::batch>>, Column, To<Invariant>, Relu,
                                     To<Sharded<Axis::feature>>, Row>{},
                          any_ranks(3));
  CHECK(with["1.weight"] == without["0.weight"]);
  CHECK(with["1.bias"] == without["0.bias"]);
  CHECK(with["5.weight"] == without["2.weight"]);
  CHECK(with["5.bias"] == without["2.bias"]);
}

TEST_CASE("a rank has memory for its own part of a weight and no more") {
  const ColumnParallelLinear<640, 100, false> column;
  const RowParallelLinear<640, 100, false> row;
  for (const int ranks : rank_counts({1, 3, 8})) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const Place place{rank, ranks};
      const std::size_t outputs = block_of({Axis::output, 100}, place).size;
      const std::size_t inputs = block_of({Axis::input, 640}, place).size;
      constexpr std::size_t line = 8;  // doubles, to which a parameter is rounded up
      CHECK(begun(column, ranks).values[at] < outputs * 640 + line);
      CHECK(begun(row, ranks).values[at] < inputs * 100 + line);
    }
  }
  for (const int ranks : rank_counts({8})) {
    const auto many = begun(ColumnParallelLinear<640, 3, false>{}, ranks);
    CHECK(many.values == std::vector<std::size_t>{640, 640, 640, 0, 0, 0, 0, 0});
  }
}
