// cheapest_split against exhaustive search: for linear layers by the formulas of their layouts and
// messages, written again here; for convolutions over the models of all splits.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

#include "../examples/support/cnn.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/model/cheapest_split.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

namespace {

SplitCost cost_of(double latency, double bandwidth, double flops) {
  return {.links = StepCost::on({.latency = latency, .bandwidth = bandwidth}), .flops = flops};
}
/// Slow ranks, slow links, and in between.
const std::vector<SplitCost> costs{cost_of(1e-6, 100e9, 1e10), cost_of(1e-5, 1e9, 1e13),
                                   cost_of(2e-6, 20e9, 1e11), cost_of(5e-8, 10e9, 1e11)};
const std::vector<mesh> meshes{{.tensor = 2},
                               {.tensor = 4},
                               {.tensor = 8},
                               {.data = 3, .tensor = 2},
                               {.replica = 2, .data = 2, .tensor = 4}};

/// Whether two sums of the same numbers, in other orders, are equal.
bool is_near(double a, double b) { return std::max(a, b) <= std::min(a, b) * (1 + 1e-12); }

// --- linear layers, by formulas ------------------------------------------------------------------

/// Invariant, Replicated, Partial, Sharded<feature>.
enum class On { all, copies, summands, shards };

/// A linear layer, a ReLU or a residual block.
struct Node {
  std::size_t in = 0, out = 0;
  std::vector<Node> block{};
  bool is_linear() const { return out > 0; }
  bool is_block() const { return !block.empty(); }
};
const Node relu{};

/// The price of a model of such layers with given splits.
class Formula {
 public:
  Formula(const SplitCost& cost, const mesh& sizes, std::size_t rows, std::vector<SplitKind> splits)
      : cost_(cost),
        link_(cost.links[MeshAxis::tensor]),
        ranks_(sizes.tensor),
        sizes_(sizes),
        slice_(static_cast<double>(rows) / (sizes.data * sizes.replica)),
        rows_((rows + count(sizes) - 1) / count(sizes)),
        splits_(std::move(splits)) {}

  double seconds(const std::vector<Node>& model) {
    const On given = run(model, On::all, On::all);
    move(given, On::all, model.back().out);
    return seconds_;
  }

 private:
  static std::size_t count(const mesh& sizes) {
    return static_cast<std::size_t>(sizes.data) * static_cast<std::size_t>(sizes.replica);
  }
  std::size_t linears(const Node& node) const {
    std::size_t sum = node.is_linear() ? 1 : 0;
    for (const Node& inner : node.block) sum += linears(inner);
    return sum;
  }
  static On stream(On offered, On wanted) {
    if (offered == On::summands) return wanted == On::shards ? On::shards : On::all;
    return offered == On::copies ? On::all : offered;
  }

  On wanted_by(const Node& node, On behind, std::size_t split) const {
    if (node.is_block()) return stream(behind, On::all);
    if (!node.is_linear()) return behind;
    switch (splits_[split]) {
      case SplitKind::output:
        return On::copies;
      case SplitKind::input:
        return On::shards;
      default:
        return On::all;
    }
  }

  On run(const std::vector<Node>& nodes, On given, On end) {
    std::vector<On> wanted(nodes.size() + 1, end);
    std::size_t split = next_;
    for (const Node& node : nodes) split += linears(node);
    for (std::size_t i = nodes.size(); i-- > 0;) {
      split -= linears(nodes[i]);
      wanted[i] = wanted_by(nodes[i], wanted[i + 1], split);
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) given = step(nodes[i], given, wanted[i + 1]);
    return given;
  }

  On step(const Node& node, On given, On behind) {
    if (node.is_block()) {
      const On whole = stream(given, stream(behind, On::all));
      move(given, whole, node.block.front().in);
      move(run(node.block, whole, whole), whole, node.block.front().in);
      return whole;
    }
    if (!node.is_linear()) {
      if (given != On::summands) return given;
      const On taken = behind == On::shards ? On::shards : On::all;
      move(given, taken, width_);
      return taken;
    }
    return linear(node, given);
  }

  On linear(const Node& node, On given) {
    const SplitKind split = splits_[next_++];
    const auto part = [&](std::size_t n) {
      const auto p = static_cast<std::size_t>(ranks_);
      return (n + p - 1) / p;
    };
    const std::size_t out = split == SplitKind::output ? part(node.out) : node.out;
    const std::size_t in = split == SplitKind::input ? part(node.in) : node.in;
    move(given,
         split == SplitKind::output  ? On::copies
         : split == SplitKind::input ? On::shards
                                     : On::all,
         node.in);
    const auto parameters = static_cast<double>(out * in + out);
    seconds_ += 2 * (has_gradient_ ? 3 : 2) * parameters * static_cast<double>(rows_) / cost_.flops;
    for (const MeshAxis axis : {MeshAxis::data, MeshAxis::replica}) {
      const double ranks = sizes_[axis];
      seconds_ += 2 * 4 * parameters * (ranks - 1) / ranks / cost_.links[axis].bandwidth;
    }
    has_gradient_ = true;
    width_ = node.out;
    return split == SplitKind::output  ? On::shards
           : split == SplitKind::input ? On::summands
                                       : On::all;
  }

  void move(On from, On to, std::size_t features) {
    const double bytes = 4 * slice_ * static_cast<double>(features);
    const auto send = [&](On before, On after) {
      if (before == On::summands && after == On::shards) seconds_ += scatter_or_gather(bytes);
      if (before == On::summands && after != On::shards) seconds_ += sum(bytes);
      if (before == On::shards && after != On::shards) seconds_ += scatter_or_gather(bytes);
    };
    const auto dual = [](On on) {
      return on == On::copies ? On::summands : on == On::summands ? On::copies : on;
    };
    if (from == to) return;
    send(from, to);
    if (has_gradient_) send(dual(to), dual(from));
  }

  double header() const { return link_.latency + 48.0 * (ranks_ - 1) / link_.bandwidth; }
  double scatter_or_gather(double bytes) const {
    return header() + link_.latency + bytes * (ranks_ - 1) / ranks_ / link_.bandwidth;
  }
  double sum(double bytes) const {
    if (bytes <= 4096) return header() + link_.latency + bytes * (ranks_ - 1) / link_.bandwidth;
    return 2 * scatter_or_gather(bytes) - header();
  }

  const SplitCost& cost_;
  Link link_;
  int ranks_;
  mesh sizes_;
  double slice_;
  std::size_t rows_;
  std::vector<SplitKind> splits_;
  std::size_t next_ = 0;  // linear layer
  std::size_t width_ = 0;
  bool has_gradient_ = false;
  double seconds_ = 0;
};

template <std::size_t N>
std::vector<SplitKind> assignment(std::size_t number) {
  constexpr std::array kinds{SplitKind::none, SplitKind::output, SplitKind::input};
  std::vector<SplitKind> splits;
  for (std::size_t i = 0; i < N; ++i, number /= 3) splits.push_back(kinds[number % 3]);
  return splits;
}

template <class M, std::size_t N>
void compare_with_all(const std::vector<Node>& model) {
  for (const mesh& sizes : meshes)
    for (const SplitCost& cost : costs)
      for (const std::size_t rows : {std::size_t{12}, std::size_t{3000}}) {
        const auto found =
            cheapest_split<M>(cost, sizes, {{Axis::batch, rows}, {Axis::feature, model[0].in}});
        static_assert(found.splits.size() == N);
        double least = 1e300;
        std::size_t all = 1;
        for (std::size_t i = 0; i < N; ++i) all *= 3;
        for (std::size_t number = 0; number < all; ++number)
          least = std::min(least, Formula(cost, sizes, rows, assignment<N>(number)).seconds(model));
        const std::vector<SplitKind> splits(found.splits.begin(), found.splits.end());
        CAPTURE(to_string(sizes));
        CAPTURE(rows);
        CHECK(found.seconds == doctest::Approx(least).epsilon(1e-12));
        CHECK(Formula(cost, sizes, rows, splits).seconds(model) ==
              doctest::Approx(least).epsilon(1e-12));
      }
}

template <std::size_t In, std::size_t Out>
using Whole = Linear<split::none, In, Out>;

struct AlternatingMlp : Sequential<ColumnParallelLinear<48, 64>, Relu, RowParallelLinear<64, 10>> {
};
struct Six : Sequential<Whole<24, 33>, Relu, Whole<33, 40>,
                        Residual<Sequential<Whole<40, 65>, Relu, Whole<65, 40>>>, Relu,
                        Whole<40, 32>, Whole<32, 10>> {};

// --- convolutions, over the models of all splits -------------------------------------------------

struct Images : Sequential<Conv2d<split::none, 2, 4, kernel(3, {.padding = 1})>, Relu,
                           Residual<Conv2d<split::none, 4, 4, kernel(3, {.padding = 1})>>> {};
const Shape images{{Axis::batch, 24}, {Axis::channel, 2}, {Axis::height, 6}, {Axis::width, 5}};

constexpr std::array of_images{SplitKind::none, SplitKind::output, SplitKind::input,
                               SplitKind::height, SplitKind::width};

/// To windows along one axis there is no redistribution from a tensor that is split along another.
constexpr bool exists(SplitKind first, SplitKind second) {
  const bool reads_windows = second == SplitKind::height || second == SplitKind::width;
  const bool is_split = first != SplitKind::none && first != SplitKind::input;
  return !reads_windows || !is_split || first == second;
}

template <std::size_t I>
double price_of_images(const SplitCost& cost, const mesh& sizes) {
  constexpr std::array splits{of_images[I / 5], of_images[I % 5]};
  if constexpr (exists(splits[0], splits[1])) {
    return price_of<with_splits<Images, splits>>(cost, sizes, images);
  } else {
    return 1e300;
  }
}

/// Three plans of one network, and what is found for it. Its own splits are among those searched.
template <class Cnn>
void compare_with_plans(const Shape& in) {
  for (const int ranks : {2, 4, 8})
    for (const SplitCost& cost : costs) {
      const mesh sizes{.tensor = ranks};
      const auto found = cheapest_split<Cnn>(cost, sizes, in);
      CHECK(found.seconds <= price_of<example::GatheredCnn<1, 28>>(cost, sizes, in));
      CHECK(found.seconds <= price_of<example::AlternatingCnn<1, 28>>(cost, sizes, in));
      const double spatial = price_of<example::SpatialCnn<1, 28>>(cost, sizes, in);
      CHECK((found.seconds < spatial || is_near(found.seconds, spatial)));
    }
}

// The splits are a constant expression, and so is the model that has them.
// begin: mlp
using Mlp = Sequential<Whole<48, 64>, Relu, Whole<64, 10>>;
constexpr auto found_for_mlp = cheapest_split<Mlp, mesh{.tensor = 4}>(
    {.links = StepCost::on({.latency = 1e-6, .bandwidth = 100e9}), .flops = 1e10},
    {{Axis::batch, 96}, {Axis::feature, 48}});
static_assert(
    std::same_as<with_splits<Mlp, found_for_mlp.splits>,
                 Sequential<ColumnParallelLinear<48, 64>, Relu, RowParallelLinear<64, 10>>>);
// end: mlp

}  // namespace

TEST_CASE("cheapest_split: linear layers have the splits of an exhaustive search") {
  compare_with_all<Six, 6>(
      {{24, 33}, relu, {33, 40}, {0, 0, {{40, 65}, relu, {65, 40}}}, relu, {40, 32}, {32, 10}});
}

TEST_CASE("cheapest_split: convolutions have the cheapest splits of all models") {
  for (const mesh& sizes : meshes)
    for (const SplitCost& cost : costs) {
      const auto found = cheapest_split<Images>(cost, sizes, images);
      static_assert(found.splits.size() == 2);
      const std::vector<double> all = [&]<std::size_t... Is>(std::index_sequence<Is...>) {
        return std::vector{price_of_images<Is>(cost, sizes)...};
      }
      (std::make_index_sequence<25>{});
      CHECK(is_near(found.seconds, *std::min_element(all.begin(), all.end())));
      const auto at = [&](SplitKind kind) {
        return static_cast<std::size_t>(std::find(of_images.begin(), of_images.end(), kind) -
                                        of_images.begin());
      };
      CHECK(is_near(found.seconds, all[5 * at(found.splits[0]) + at(found.splits[1])]));
    }
}

TEST_CASE("cheapest_split: what it finds is never dearer than a plan of the network") {
  const Shape in{{Axis::batch, 64}, {Axis::channel, 1}, {Axis::height, 28}, {Axis::width, 28}};
  compare_with_plans<example::SpatialCnn<1, 28>>(in);
}

TEST_CASE("cheapest_split: messages are those of the plan") {
  const mesh sizes{.data = 2, .tensor = 4};
  const SplitCost cost = cost_of(1e-6, 1e9, 1e300);  // computing takes no time
  using Tall = AlternatingMlp;
  const Shape in{{Axis::batch, 64}, {Axis::feature, 48}};
  Plan plan = shardwise::plan<Tall, mesh{.data = 2, .tensor = 4}>(batch{64});
  plan.settle = {};
  const double gradients = 4.0 * (48 * 16 + 16 + 16 * 10 + 10);  // bytes of a rank; two of them
  CHECK(price_of<Tall>(cost, sizes, in) ==
        doctest::Approx(predict(plan, cost.links) + gradients / 1e9).epsilon(1e-12));
}

TEST_CASE("cheapest_split: ranks along context compute some tokens of each sample") {
  using Token = Linear<split::none, 6, 6>;
  const SplitCost cost = cost_of(1e-6, 1e300, 1e9);
  const auto computing = [&](const mesh& sizes, std::size_t samples, std::size_t tokens) {
    return price_of<Token>(cost, sizes,
                           {{Axis::batch, samples}, {Axis::sequence, tokens}, {Axis::feature, 6}});
  };
  CHECK(computing({.context = 8}, 1, 4096) == computing({.data = 8}, 8, 512));
  CHECK(computing({.context = 8}, 1, 4096) < 0.2 * computing({}, 1, 4096));
}

TEST_CASE("cheapest_split: rates that are not above 0") {
  const Shape in{{Axis::batch, 7}, {Axis::feature, 24}};
  CHECK_THROWS_WITH_AS(cheapest_split<Six>(cost_of(1e-6, 1e9, 0), {.tensor = 2}, in),
                       doctest::Contains("a rank computes 0 operations"), argument_error);
  CHECK_THROWS_WITH_AS(cheapest_split<Six>(cost_of(1e-6, 0, 1e9), {.tensor = 2}, in),
                       doctest::Contains("a bandwidth of 0 bytes"), argument_error);
}
