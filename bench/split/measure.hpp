#pragma once
// Measures one product, or a pair of products, in each way of splitting it: with the library's own
// models, so that what is measured is what users get.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/shardwise.hpp"
#include "shardwise/testing/calls.hpp"
#include "split/engine.hpp"
#include "support/moves.hpp"
#include "support/random_values.hpp"
#include "support/require_equal.hpp"
#include "support/together.hpp"

namespace split {

namespace sw = shardwise;

using Whole = sw::Linear<sw::split::none, sw::dynamic, sw::dynamic>;
using Column = sw::ColumnParallelLinear<sw::dynamic, sw::dynamic>;
using Row = sw::RowParallelLinear<sw::dynamic, sw::dynamic>;
using Features = sw::Sharded<sw::Axis::feature>;

struct WholePair : sw::Sequential<Whole, Whole> {
  using Sequential::Sequential;
};
struct ColumnRow : sw::Sequential<Column, Row> {
  using Sequential::Sequential;
};
struct ColumnGatherColumn : sw::Sequential<Column, sw::To<sw::Invariant>, Column> {
  using Sequential::Sequential;
};

inline sw::Shape matrix(std::size_t rows, std::size_t features) {
  return {{sw::Axis::batch, rows}, {sw::Axis::feature, features}};
}

inline std::size_t bytes_of(std::span<const sw::CountedCall> calls) {
  std::size_t bytes = 0;
  for (const sw::CountedCall& call : calls) bytes += call.elements * sw::size_of(call.dtype);
  return bytes;
}

/// One architecture on some ranks: the model, its products alone, and its redistributions alone.
template <class T, class B, class Architecture>
class Candidate {
 public:
  using Model = sw::Model<Architecture, sw::Context<T, B, Ranks>,
                          sw::Ends<sw::Invariant, sw::Invariant>, sw::ForwardOnly>;

  Candidate(std::string name, const Architecture& layers, Ranks& ranks, std::span<const T> x,
            std::size_t rows)
      : name_(std::move(name)),
        ranks_(&ranks),
        in_(matrix(rows, layers.in())),
        x_(x, in_, sw::place_of(ranks)),
        model_(layers, ranks, sw::Seed{1}, in_),
        moves(ranks) {
    model_.visit_parameters([&](auto& parameter) { add_product(parameter); });
  }
  Candidate(const Candidate&) = delete;

  std::span<const T> forward() { return model_.evaluate(x_).span(); }

  void multiply() {
    for (Product& product : products_)
      product.kernel->forward(in_[0].extent(), product.x, {product.weight, 1, true}, product.bias,
                              sw::Activation::none, product.y.data());
  }

  const std::string& name() const { return name_; }

  /// All that is known without a clock, in bytes: what ranks pass into collectives and what ring
  /// algorithms send, of all ranks together; parameters and the model's memory, without what a
  /// backend packs, of the rank that holds most. A collective, after the first forward.
  /// throws   std::runtime_error if the model sends something else than planned
  std::vector<std::pair<std::string, double>> known() {
    ranks_->clear();
    forward();
    const std::vector<sw::CountedCall> log(ranks_->log().begin(), ranks_->log().end());
    const std::vector<sw::CountedCall> counted = sw::counted_calls(*ranks_, log);
    const sw::Plan plan = model_.plan(in_);
    const std::vector<sw::CountedCall> planned =
        sw::planned_calls<Ranks>(plan.forward, plan.sizes.tensor);
    const std::string difference = sw::difference_from_plan(name_, planned, counted);
    if (!difference.empty()) throw std::runtime_error(difference);
    const auto most = [&](std::size_t bytes) {
      return static_cast<double>(bench::over_ranks(*ranks_, bytes, sw::Reduction::max));
    };
    return {{"planned bytes", static_cast<double>(bytes_of(planned))},
            {"ring bytes", static_cast<double>(plan.forward.bytes_sent(plan.sizes))},
            {"parameter bytes", most(model_.values().size_bytes())},
            {"memory bytes", most(model_.run().pool.reserved())}};
  }

 private:
  /// A product of this rank, with the model's own weights.
  struct Product {
    std::unique_ptr<typename B::template Linear<T>> kernel;
    const T* weight;
    const T* bias;
    const T* x;  // what the product before has left or, behind a gather, memory of its own
    std::vector<T> gathered, y;
  };

  template <class P>
  void add_product(P& parameter) {
    const sw::Shape& local = parameter.value.local();
    if (local.rank() == 2) {
      const std::size_t in = local[1].extent(), out = local[0].extent(), rows = in_[0].extent();
      const bool follows = !products_.empty() && products_.back().y.size() == rows * in;
      const T* before = follows ? products_.back().y.data() : nullptr;
      Product& product = products_.emplace_back();
      product.kernel = std::make_unique<typename B::template Linear<T>>(backend_, in, out);
      product.weight = parameter.value.data();
      product.bias = nullptr;
      if (!follows) product.gathered = bench::random_values<T>(rows * in);
      product.x = follows ? before : product.gathered.data();
      product.y.resize(rows * out);
    } else if (!std::is_same_v<typename P::used, sw::Partial> || ranks_->rank() == 0) {
      products_.back().bias = parameter.value.data();  // summands have the bias on the first rank
    }
  }

  std::string name_;
  Ranks* ranks_;
  sw::Shape in_;
  sw::View<const T, sw::Invariant> x_;
  Model model_;
  B backend_{};
  std::vector<Product> products_;

 public:
  bench::Moves<T, Ranks> moves;  // its redistributions
};

/// Unsplit on one rank, with the others idle, and two splits on all of them.
template <class T, class B, class Unsplit, class First, class Second>
std::vector<bench::Timing> measure_ways(Ranks& ranks,
                                        std::optional<Candidate<T, B, Unsplit>>& unsplit,
                                        Candidate<T, B, First>& first,
                                        Candidate<T, B, Second>& second, const Problem& problem,
                                        int rounds, double peak) {
  using Known = std::vector<std::pair<std::string, double>>;
  const std::vector<Known> known{unsplit ? unsplit->known() : Known(), first.known(),
                                 second.known()};
  std::vector<T> exact(first.forward().size());
  if (unsplit) std::copy_n(unsplit->forward().data(), exact.size(), exact.data());
  ranks.broadcast(std::span<T>(exact), 0);
  // Outputs of about 1 are summed in another order.
  const double rounding = sizeof(T) == 2 ? 0x1p-4 : sizeof(T) == 4 ? 0x1p-19 : 0x1p-48;
  const auto require = [&](auto& way) {
    const std::span<const T> got = way.forward();
    bench::require_within(
        way.name(), got.size(), [&](std::size_t i) { return exact[i]; },
        [&](std::size_t i) { return got[i]; }, rounding, rounding);
  };
  require(first), require(second);

  const auto seconds = bench::in_turns(ranks,
                                       {[&] {
                                          if (unsplit) unsplit->forward();
                                        },
                                        [&] { first.forward(); }, [&] { second.forward(); },
                                        [&] {
                                          if (unsplit) unsplit->multiply();
                                        },
                                        [&] { first.multiply(); }, [&] { second.multiply(); },
                                        [&] { first.moves(); }, [&] { second.moves(); }},
                                       rounds, 2e-3);
  std::vector<bench::Timing> timings = bench::timings_of({"unsplit", first.name(), second.name()},
                                                         {seconds[0], seconds[1], seconds[2]});
  for (std::size_t way = 0; way < timings.size(); ++way) {
    bench::Timing& timing = timings[way];
    const std::vector<double>& products = seconds[way + 3];
    const auto us = [&](const std::string& what, const std::vector<double>& times) {
      timing.also.emplace_back(what + " us", 1e6 * bench::Spread::of(times).median);
    };
    us("product", products);
    if (way > 0) {
      us("sending", seconds[way + 5]);
      std::vector<double> exposed;
      for (std::size_t round = 0; round < products.size(); ++round)
        exposed.push_back(std::max(0.0, seconds[way][round] - products[round]));
      us("exposed", exposed);
    }
    timing.also.emplace_back("speedup", timing.speed.median);
    timing.also.emplace_back("efficiency", timing.speed.median / ranks.size());
    timing.also.emplace_back("of peak", problem.operations() / timing.seconds.median / peak);
    timing.also.insert(timing.also.end(), known[way].begin(), known[way].end());
  }
  return timings;
}

template <class T, class B>
std::vector<bench::Timing> measure(Ranks& ranks, const Problem& problem, int rounds, double peak) {
  const auto [rows, in, out, is_pair] = problem;
  const std::vector<T> x = bench::random_values<T>(rows * in);
  Ranks alone = ranks.split(ranks.rank(), 0);
  const bool is_first = ranks.rank() == 0;
  const std::span<const T> input(x);
  if (is_pair) {
    std::optional<Candidate<T, B, WholePair>> unsplit;
    const Whole up(in, out), down(out, in);
    if (is_first) unsplit.emplace("unsplit", WholePair(up, down), alone, input, rows);
    Candidate<T, B, ColumnRow> row("column-row", ColumnRow(Column(in, out), Row(out, in)), ranks,
                                   input, rows);
    row.moves.sum(matrix(rows, in));
    Candidate<T, B, ColumnGatherColumn> gather(
        "column-gather-column", ColumnGatherColumn(Column(in, out), {}, Column(out, in)), ranks,
        input, rows);
    gather.moves.template add<Features, sw::Invariant>(matrix(rows, out));
    gather.moves.template add<Features, sw::Invariant>(matrix(rows, in));
    return measure_ways(ranks, unsplit, row, gather, problem, rounds, peak);
  }
  std::optional<Candidate<T, B, Whole>> unsplit;
  if (is_first) unsplit.emplace("unsplit", Whole(in, out), alone, input, rows);
  Candidate<T, B, Column> column("column", Column(in, out), ranks, input, rows);
  column.moves.template add<Features, sw::Invariant>(matrix(rows, out));
  Candidate<T, B, Row> row("row", Row(in, out), ranks, input, rows);
  row.moves.template add<sw::Invariant, Features>(matrix(rows, in));
  row.moves.sum(matrix(rows, out));
  return measure_ways(ranks, unsplit, column, row, problem, rounds, peak);
}

/// The most of square products that grow until one takes some milliseconds.
template <class T, class B>
double peak(Ranks& ranks) {
  double best = 0;
  for (std::size_t n = 128; n <= 2048; n *= 2) {
    B backend;
    typename B::template Linear<T> kernel(backend, n, n);
    const std::vector<T> x = bench::random_values<T>(n * n);
    std::vector<T> y(n * n);
    const bench::Run run = [&] {
      kernel.forward(n, x.data(), {x.data(), 1, true}, nullptr, sw::Activation::none, y.data());
    };
    const int calls = bench::calls_of_sample(ranks, run, 2e-3);
    double least = std::numeric_limits<double>::infinity();
    for (int sample = 0; sample < 7; ++sample)
      least = std::min(least, bench::seconds_together(ranks, calls, run));
    const double cube = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    best = std::max(best, 2 * cube * ranks.size() / least);
    if (bench::of_first(ranks, least > 5e-3 ? 1 : 0) != 0) break;
  }
  return best;
}

/// Adds a backend with some of its dtypes; gives true, to be called where a program begins.
template <class B, class... Ts>
bool add_engines(const std::string& backend, int preference) {
  const auto dtype = [](sw::Dtype type) -> std::string {
    return type == sw::Dtype::float32 ? "float" : type == sw::Dtype::bfloat16 ? "bf16" : "double";
  };
  (engines().push_back(
       {backend, dtype(sw::dtype_v<Ts>), sizeof(Ts), preference, measure<Ts, B>, peak<Ts, B>}),
   ...);
  return true;
}

}  // namespace split
