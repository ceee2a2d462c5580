// Positions of tokens at 1 to 8 ranks, against their formula: rotary and learned ones, in every
// layout, with packed documents and padding.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/position_embedding.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layers/rope_frequencies.hpp"
#include "shardwise/model/model.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::filled;
using testing::largest_difference_of_part;
using testing::message_of;
using testing::Ranks;

namespace {

using Feature = Sharded<Axis::feature>;
using Sequence = Sharded<Axis::sequence>;
using Batch = Sharded<Axis::batch>;

constexpr std::size_t samples = 2, length = 7, heads = 3, size = 6, wide = heads * size;
constexpr Shape tokens{
    {Axis::batch, samples}, {Axis::sequence, length}, {Axis::feature, heads, size}};

/// Two packed documents and two rows of padding in the first sample, one document in the second.
const std::vector<Segment> documents{{0, 2}, {2, 3, 5}, {8, 6}};

/// The position of a token; -1 for padding.
int position_of(const std::vector<Segment>& segments, std::size_t row) {
  if (segments.empty()) return static_cast<int>(row % length);
  for (const Segment& one : segments)
    if (row >= one.row && row < one.row + one.rows)
      return static_cast<int>(one.position + row - one.row);
  return -1;
}

/// Whole numbers.
double number_of(std::size_t i) { return static_cast<double>(i % 9) - 4; }

template <class T>
auto number(std::size_t i) {
  return static_cast<accumulate_t<T>>(number_of(i));
}

/// Element i of x, turned by position · theta^(-2 p / n), or back.
double turned(const Rope::Options& options, const std::vector<Segment>& segments, std::size_t i,
              double direction) {
  const std::size_t n = options.features == 0 ? size : options.features;
  const std::size_t in_head = i % size;
  if (in_head >= n) return number_of(i);
  const bool halves = options.pairs == Rope::Pairs::halves;
  const bool is_first = halves ? in_head < n / 2 : in_head % 2 == 0;
  const std::size_t pair = halves ? in_head % (n / 2) : in_head / 2;
  const std::size_t apart = halves ? n / 2 : 1;
  const double frequency =
      std::pow(options.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(n)) /
      options.scaling.factor;
  const int position = position_of(segments, i / wide);
  const double angle = direction * (position < 0 ? 0 : position) * frequency;
  return is_first ? number_of(i) * std::cos(angle) - number_of(i + apart) * std::sin(angle)
                  : number_of(i) * std::cos(angle) + number_of(i - apart) * std::sin(angle);
}

template <Layout L, class T = double>
void check_rope(const Rope::Options& options, const std::vector<Segment>& segments,
                double bound = 1e-14) {
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      Model<Rope, Context<T, Reference, Ranks>, Ends<L, L>, TrainWithInputGradient> model(
          Rope(options), group, Seed{1}, tokens);
      const auto x = filled<T, L>(tokens, place_of(group), number<T>);
      const auto y = model.forward(x.view(), {.segments = segments});
      CHECK(largest_difference_of_part(
                y, [&](std::size_t i) { return turned(options, segments, i, 1); }) <= bound);
      const auto dx = model.backward(x.view());
      CHECK(largest_difference_of_part(
                dx, [&](std::size_t i) { return turned(options, segments, i, -1); }) <= bound);
    });
  }
}

void check_rope_everywhere(const Rope::Options& options) {
  for (const auto& segments : {std::vector<Segment>{}, documents}) {
    check_rope<Invariant>(options, segments);
    check_rope<Feature>(options, segments);
    check_rope<Sequence>(options, segments);
    check_rope<Batch>(options, segments);
  }
}

}  // namespace

TEST_CASE("Rope turns each head by the position of its token, in every layout") {
  check_rope_everywhere({});
  check_rope_everywhere({.theta = 100, .pairs = Rope::Pairs::neighbours});
  check_rope_everywhere({.features = 4, .scaling = RopeScaling::linear(2)});
}

TEST_CASE("angles are computed in double, and results are rounded once") {
  // Numbers below 6; at a position of 10 million an angle in float is off by a radian.
  const std::vector<Segment> late{{0, length, 10'000'000}, {length, length, 3}};
  check_rope<Feature, float>({}, late, 16 * 0x1p-24);
  check_rope<Feature, bf16>({}, late, 4 * 0x1p-8);
  check_rope<Feature, fp16>({}, late, 4 * 0x1p-11);
}

TEST_CASE("frequencies for long sequences are those of transformers") {
  // Computed by the formulas of its modeling_rope_utils.py, written out in Python.
  const detail::RopeFrequencies<> llama3{500000, 128, RopeScaling::llama3(8, 1, 4, 8192)};
  const detail::RopeFrequencies<> yarn{10000, 128, RopeScaling::yarn(4, 4096)};
  struct Row {
    std::size_t pair;
    double of_llama3, of_yarn;
  };
  const Row rows[] = {{0, 1, 1},
                      {1, 0.814617233856545, 0.865964323360065},
                      {28, 0.00321144599475259, 0.0136790723849148},
                      {30, 0.00137189356776114, 0.00948851788270058},
                      {31, 0.000856751412919632, 0.00788360778009149},
                      {35, 9.55621235396468e-05, 0.00368399194836505},
                      {40, 3.42810219595259e-05, 0.00133788670237893},
                      {63, 3.06892598891451e-07, 2.88695496172365e-05}};
  for (const Row& row : rows) {
    CAPTURE(row.pair);
    CHECK(std::abs(llama3(row.pair) / row.of_llama3 - 1) < 1e-13);
    CHECK(std::abs(yarn(row.pair) / row.of_yarn - 1) < 1e-13);
  }
  CHECK(std::abs(yarn.scaling.amplitude - 1.13862943611199) < 1e-14);
  // Ramps from a pair below the first one, to a pair behind the last one, and from a pair to
  // itself.
  const detail::RopeFrequencies<> early{10000, 128, RopeScaling::yarn(4, 64)};
  const detail::RopeFrequencies<> late{10, 16, RopeScaling::yarn(4, 8192, 512, 1)};
  const detail::RopeFrequencies<> at_once{10000, 128, RopeScaling::yarn(4, 6)};
  CHECK(std::abs(early(3) / 0.563434062691125 - 1) < 1e-13);
  CHECK(std::abs(early(7) / 0.252399764426138 - 1) < 1e-13);
  CHECK(std::abs(late(5) / 0.207495199245395 - 1) < 1e-13);
  CHECK(std::abs(late(7) / 0.100014107412249 - 1) < 1e-13);
  CHECK(at_once(0) == 1);
  CHECK(std::abs(at_once(3) / 0.162345407894053 - 1) < 1e-13);
}

TEST_CASE("yarn lengthens every pair") {
  SingleRank alone;
  const RopeScaling scaling = RopeScaling::yarn(4, 64);
  Model<Rope, Context<double, Reference, SingleRank>> model(Rope({.scaling = scaling}), alone,
                                                            Seed{1}, tokens);
  const auto x = filled<double, Invariant>(tokens, {}, number_of);
  const auto y = model.evaluate(x.view());
  double of_x = 0, of_y = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    of_x += x[i] * x[i];
    of_y += y[i] * y[i];
  }
  CHECK(std::abs(of_y / of_x - scaling.amplitude * scaling.amplitude) < 1e-13);
}

namespace {

constexpr std::size_t rows = 11;
using Table = PositionEmbedding<rows, wide>;

template <class T, Layout L>
void check_table(const std::vector<Segment>& segments) {
  std::vector<double> slope(rows * wide);
  const auto row_of = [&](std::size_t i) { return position_of(segments, i / wide); };
  for (std::size_t i = 0; i < tokens.elements(); ++i)
    if (row_of(i) >= 0)
      slope[static_cast<std::size_t>(row_of(i)) * wide + i % wide] += 2 * number_of(i);
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    CAPTURE(layout_name<L>());
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      const Place place = place_of(group);
      Model<Table, Context<T, Reference, Ranks>, Ends<L, Invariant>, TrainWithInputGradient> model(
          Table{}, group, Seed{1}, tokens);
      const auto table =
          filled<T, Invariant>({{Axis::output, rows}, {Axis::input, heads, size}}, place,
                               [](std::size_t i) { return number<T>(i + 5); });
      model.set("weight", table.view());
      auto x = filled<T, L>(tokens, place, number<T>);
      if (std::same_as<L, Partial> && place.rank > 0) x = Tensor<T, L>(tokens, place);
      const auto dy = filled<T, Invariant>(tokens, place, number<T>);
      for (int batch = 0; batch < 2; ++batch) {
        const auto y = model.forward(x.view(), {.segments = segments});
        CHECK(largest_difference_of_part(y, [&](std::size_t i) {
                const auto at = static_cast<std::size_t>(row_of(i));
                return number_of(i) + (row_of(i) < 0 ? 0 : number_of(at * wide + i % wide + 5));
              }) == 0);
        const auto dx = model.backward(dy.view());
        CHECK(largest_difference_of_part(dx, number_of) == 0);
      }
      model.settle_gradients();
      const auto gradient = model.gather_gradient("weight");
      CHECK(largest_difference_of_part(gradient.view(), [&](std::size_t i) { return slope[i]; }) ==
            0);
    });
  }
}

}  // namespace

TEST_CASE("learned positions and their gradients, in each layout") {
  for (const auto& segments : {std::vector<Segment>{}, documents}) {
    check_table<double, Invariant>(segments);
    check_table<double, Partial>(segments);
    check_table<double, Feature>(segments);
    check_table<double, Sequence>(segments);
    check_table<double, Batch>(segments);
  }
}

TEST_CASE_TEMPLATE("and of each element type", T, float, bf16, fp16) {
  for (const auto& segments : {std::vector<Segment>{}, documents})
    check_table<T, Feature>(segments);
}

TEST_CASE("wrong positions, heads and options are told") {
  SingleRank alone;
  const Tensor<float, Invariant> x(tokens);
  const auto run = [&](auto layer, const Shape& shape, const std::vector<Segment>& segments) {
    return message_of([&] {
      Model<decltype(layer), Context<float, Reference, SingleRank>> model(layer, alone, Seed{1},
                                                                          shape);
      model.evaluate(x.view(), {.segments = segments});
    });
  };
  check_mentions(run(Table{}, tokens, {{7, 4, 8}}),
                 {"row 10 of the input is at position 11, but the "
                  "table has 11 positions"});
  check_mentions(run(PositionEmbedding<6, wide>{}, tokens, {}),
                 {"row 6 of the input is at position 6"});
  check_mentions(
      message_of([] {
        run_ranks(2, [](ThreadCommunicator& ranks) {
          Model<Table, Context<float, Reference, ThreadCommunicator>, Ends<Batch, Batch>> model(
              Table{}, ranks, Seed{1}, tokens);
          const Tensor<float, Batch> mine(tokens, place_of(ranks));
          model.evaluate(mine.view(), {.segments = std::vector<Segment>{{length + 2, 4, 8}}});
        });
      }),
      {"row 12 of the input is at position 11"});
  check_mentions(run(PositionEmbedding<6, 5>{}, tokens, {}), {"adds to tokens of 5 features"});
  const Shape odd{{Axis::sequence, 2}, {Axis::feature, 2, 3}};
  check_mentions(run(Rope{}, odd, {}), {"heads of an even number of features"});
  check_mentions(run(Rope({.features = 8}), tokens, {}), {"of which 8 turn"});
  check_mentions(run(Rope{}, {{Axis::batch, 2}, {Axis::feature, 2, 2}}, {}), {"no rows of tokens"});
  check_mentions(message_of([] { Rope({.theta = 1}); }), {"theta must be above 1"});
  check_mentions(message_of([] { Rope({.scaling = RopeScaling::llama3(8, 4, 4, 8192)}); }),
                 {"low below"});
}
