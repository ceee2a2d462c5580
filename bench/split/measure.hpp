#pragma once
// Measures one product, or a pair of products, in each way of splitting it: with the library's own
// models, so that what is measured is what users get.

#include <algorithm>
#include <cmath>
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
#include "support/random_values.hpp"
#include "support/together.hpp"

namespace split {

namespace sw = shardwise;

using Whole = sw::Linear<sw::split::none, sw::dynamic, sw::dynamic>;
using Column = sw::ColumnParallelLinear<sw::dynamic, sw::dynamic>;
using Row = sw::RowParallelLinear<sw::dynamic, sw::dynamic>;

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

template <class T>
std::vector<T> random_elements(std::size_t n) {
  const std::vector<float> values = bench::random_values(n);
  std::vector<T> elements(n);
  std::transform(values.begin(), values.end(), elements.begin(),
                 [](float value) { return static_cast<T>(value); });
  return elements;
}

/// Redistributions of matrices with so many rows, as they are made between layers.
template <class T>
class Moves {
 public:
  Moves(Ranks& ranks, std::size_t rows) : ranks_(&ranks), rows_(rows), pool_(new sw::Pool) {}

  void gather(std::size_t features) {
    add<sw::Sharded<sw::Axis::feature>, sw::Invariant>(features);
  }
  void slice(std::size_t features) { add<sw::Invariant, sw::Sharded<sw::Axis::feature>>(features); }

  /// In place, as a model sums what its own layer made. Sums of sums would overflow: so of zeros.
  void sum(std::size_t features) {
    const auto part = std::make_shared<sw::Tensor<T, sw::Invariant>>(matrix(rows_, features),
                                                                     sw::place_of(*ranks_));
    all_.push_back([=, this] {
      const sw::View<const T, sw::Partial> in(part->data(), part->global(), part->place());
      sw::redistribute(*ranks_, *pool_, in, part->view());
    });
  }

  void operator()() const {
    for (const bench::Run& one : all_) one();
  }

 private:
  template <sw::Layout From, sw::Layout To>
  void add(std::size_t features) {
    const sw::Shape shape = matrix(rows_, features);
    const auto from = std::make_shared<sw::Tensor<T, From>>(shape, sw::place_of(*ranks_));
    const auto to = std::make_shared<sw::Tensor<T, To>>(shape, sw::place_of(*ranks_));
    const std::vector<T> values = random_elements<T>(from->size());
    std::copy(values.begin(), values.end(), from->data());
    all_.push_back(
        [=, this] { sw::redistribute(*ranks_, *pool_, std::as_const(*from).view(), to->view()); });
  }

  Ranks* ranks_;
  std::size_t rows_;
  std::shared_ptr<sw::Pool> pool_;
  std::vector<bench::Run> all_;
};

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
        moves_(ranks, rows) {
    model_.visit_parameters([&](auto& parameter) { add_product(parameter); });
  }
  Candidate(const Candidate&) = delete;

  std::span<const T> forward() { return model_.evaluate(x_).span(); }

  void multiply() {
    for (Product& product : products_)
      product.kernel->forward(in_[0].extent(), product.x, {product.weight, 1}, product.bias,
                              sw::Activation::none, product.y.data());
  }

  void communicate() { moves_(); }
  Moves<T>& moves() { return moves_; }

  /// All that is known without a clock. A collective, after the first forward.
  /// throws   std::runtime_error if the model sends something else than planned
  Measured known() {
    ranks_->clear();
    forward();
    const std::vector<sw::CountedCall> log(ranks_->log().begin(), ranks_->log().end());
    const std::vector<sw::CountedCall> counted = sw::counted_calls(*ranks_, log);
    const sw::Plan plan = model_.plan(in_);
    const std::vector<sw::CountedCall> planned = sw::planned_calls<Ranks>(plan.forward, plan.ranks);
    const std::string difference = sw::difference_from_plan(name_, planned, counted);
    if (!difference.empty()) throw std::runtime_error(difference);
    Measured result;
    result.split = name_;
    result.planned = bytes_of(planned);
    result.counted = bytes_of(counted);
    result.on_the_wire = plan.forward.bytes_sent(plan.ranks);
    result.parameters =
        bench::over_ranks(*ranks_, model_.values().size_bytes(), sw::Reduction::max);
    result.memory = bench::over_ranks(*ranks_, model_.run().pool.reserved(), sw::Reduction::max);
    return result;
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
      if (!follows) product.gathered = random_elements<T>(rows * in);
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
  Moves<T> moves_;
};

/// throws   std::runtime_error unless a split gives what one rank gives, up to the rounding of
///          outputs of about 1 that are summed in another order
template <class T>
void require_equal(const std::string& name, std::span<const T> exact, std::span<const T> got) {
  const double epsilon = std::is_same_v<T, sw::bf16> ? 0x1p-8
                         : std::is_same_v<T, float>  ? 0x1p-23
                                                     : 0x1p-52;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto e = static_cast<double>(exact[i]), g = static_cast<double>(got[i]);
    if (!(std::abs(e - g) <= 16 * epsilon * (1 + std::abs(e))))
      throw std::runtime_error(name + ": element " + std::to_string(i) + " of the result is " +
                               std::to_string(g) + ", but one rank gives " + std::to_string(e));
  }
}

/// Unsplit on one rank, with the others idle, and two splits on all of them.
template <class T, class B, class Unsplit, class First, class Second>
std::vector<Measured> measure_ways(Ranks& ranks, Candidate<T, B, Unsplit>* unsplit,
                                   Candidate<T, B, First>& first, Candidate<T, B, Second>& second,
                                   const Effort& effort) {
  std::vector<Measured> result;
  if (unsplit != nullptr) result.push_back(unsplit->known());
  result.insert(result.end(), {first.known(), second.known()});
  const std::span<const T> of_first = first.forward(), of_second = second.forward();
  if (unsplit != nullptr) {
    const std::span<const T> exact = unsplit->forward();
    require_equal(result[1].split, exact, of_first);
    require_equal(result[2].split, exact, of_second);
  } else {
    result.clear();
  }

  const auto seconds = bench::in_turns(
      ranks,
      {[&] {
         if (unsplit != nullptr) unsplit->forward();
       },
       [&] {
         if (unsplit != nullptr) unsplit->multiply();
       },
       [&] {
         if (unsplit != nullptr) unsplit->communicate();
       },
       [&] { first.forward(); }, [&] { first.multiply(); }, [&] { first.communicate(); },
       [&] { second.forward(); }, [&] { second.multiply(); }, [&] { second.communicate(); }},
      effort.rounds, effort.sample_seconds, effort.stop);
  if (seconds.empty()) return {};
  const auto combine = [&](std::size_t a, std::size_t b, auto f) {
    std::vector<double> values;
    for (std::size_t i = 0; i < seconds[a].size(); ++i)
      values.push_back(f(seconds[a][i], seconds[b][i]));
    return bench::Spread::of(std::move(values));
  };
  for (std::size_t way = 0; way < result.size(); ++way) {
    const std::size_t total = 3 * way;
    result[way].total = bench::Spread::of(seconds[total]);
    result[way].product = bench::Spread::of(seconds[total + 1]);
    if (way > 0) {
      result[way].communication = bench::Spread::of(seconds[total + 2]);
      result[way].exposed =
          combine(total, total + 1, [](double t, double p) { return std::max(0.0, t - p); });
    }
    result[way].speedup = combine(0, total, [](double one, double t) { return one / t; });
  }
  return result;
}

template <class T, class B>
std::vector<Measured> measure(Ranks& ranks, const Problem& problem, const Effort& effort) {
  const auto [rows, in, out, is_pair] = problem;
  const std::vector<T> x = random_elements<T>(rows * in);
  Ranks alone = ranks.split(ranks.rank(), 0);
  const bool is_first = ranks.rank() == 0;
  const std::span<const T> input(x);
  if (is_pair) {
    std::optional<Candidate<T, B, WholePair>> unsplit;
    const Whole up(in, out), down(out, in);
    if (is_first) unsplit.emplace("unsplit", WholePair(up, down), alone, input, rows);
    Candidate<T, B, ColumnRow> row("column-row", ColumnRow(Column(in, out), Row(out, in)), ranks,
                                   input, rows);
    row.moves().sum(in);
    Candidate<T, B, ColumnGatherColumn> gather(
        "column-gather-column", ColumnGatherColumn(Column(in, out), {}, Column(out, in)), ranks,
        input, rows);
    gather.moves().gather(out);
    gather.moves().gather(in);
    return measure_ways(ranks, unsplit ? &*unsplit : nullptr, row, gather, effort);
  }
  std::optional<Candidate<T, B, Whole>> unsplit;
  if (is_first) unsplit.emplace("unsplit", Whole(in, out), alone, input, rows);
  Candidate<T, B, Column> column("column", Column(in, out), ranks, input, rows);
  column.moves().gather(out);
  Candidate<T, B, Row> row("row", Row(in, out), ranks, input, rows);
  row.moves().slice(in);
  row.moves().sum(out);
  return measure_ways(ranks, unsplit ? &*unsplit : nullptr, column, row, effort);
}

/// The most of square products that grow until one takes some milliseconds.
template <class T, class B>
double peak(Ranks& ranks) {
  double best = 0;
  for (std::size_t n = 128; n <= 2048; n *= 2) {
    B backend;
    typename B::template Linear<T> kernel(backend, n, n);
    const std::vector<T> x = random_elements<T>(n * n);
    std::vector<T> y(n * n);
    const bench::Run run = [&] {
      kernel.forward(n, x.data(), {x.data(), 1}, nullptr, sw::Activation::none, y.data());
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
