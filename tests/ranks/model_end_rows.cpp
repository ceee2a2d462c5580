// The first and the last token of each sample at 1 to 8 ranks, against their formula, in every
// layout, with documents and padding; and logits of last tokens alone.

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/end_rows.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"

using namespace shardwise;
using testing::filled;
using testing::largest_difference_of_part;
using testing::Ranks;

namespace {

using Feature = Sharded<Axis::feature>;
using Sequence = Sharded<Axis::sequence>;
using Batch = Sharded<Axis::batch>;

constexpr std::size_t samples = 4, length = 5, wide = 6, none = samples * length;
constexpr Shape tokens{{Axis::batch, samples}, {Axis::sequence, length}, {Axis::feature, 3, 2}};

/// Padding behind, in front of and around the tokens of a sample, and a sample without tokens.
const std::vector<Segment> documents{{0, 2}, {2, 1}, {6, 4}, {11, 3, 7}};

struct Ends {
  std::size_t first[samples], last[samples];  // rows of the batch
};
constexpr Ends of_whole{{0, 5, 10, 15}, {4, 9, 14, 19}};
constexpr Ends of_documents{{0, 6, 11, none}, {2, 9, 13, none}};

template <class T>
auto number(std::size_t i) {
  return static_cast<accumulate_t<T>>(static_cast<double>(i % 11) - 5);
}

template <class L, class T, Layout In>
void check(const std::size_t (&rows)[samples], const std::vector<Segment>& segments) {
  CAPTURE(layout_name<In>());
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      const Place place = place_of(group);
      Model<L, Context<T, Reference, Ranks>, shardwise::Ends<In, Invariant>, TrainWithInputGradient>
          model(L{}, group, Seed{1}, tokens);
      auto x = filled<T, In>(tokens, place, number<T>);
      if (std::same_as<In, Partial> && place.rank > 0) x = Tensor<T, In>(tokens, place);
      const auto y = model.forward(x.view(), {.segments = segments});
      REQUIRE(y.global() == Shape{{Axis::batch, samples}, {Axis::feature, 3, 2}});
      CHECK(largest_difference_of_part(y, [&](std::size_t i) {
              const std::size_t row = rows[i / wide];
              return row == none ? 0.0 : static_cast<double>(number<T>(row * wide + i % wide));
            }) == 0);
      const auto dy = filled<T, Invariant>(y.global(), place,
                                           [](std::size_t i) { return number<T>(7 * i + 3); });
      const auto dx = model.backward(dy.view());
      CHECK(largest_difference_of_part(dx, [&](std::size_t i) {
              const std::size_t sample = i / wide / length;
              const std::size_t from = 7 * (sample * wide + i % wide) + 3;
              return rows[sample] == i / wide ? static_cast<double>(number<T>(from)) : 0.0;
            }) == 0);
    });
  }
}

template <class T, Layout In>
void check_both() {
  check<FirstRows, T, In>(of_whole.first, {});
  check<FirstRows, T, In>(of_documents.first, documents);
  check<LastRows, T, In>(of_whole.last, {});
  check<LastRows, T, In>(of_documents.last, documents);
}

}  // namespace

TEST_CASE("the row of the first and the last token, and its gradient, in each layout") {
  check_both<double, Invariant>();
  check_both<double, Partial>();
  check_both<double, Feature>();
  check_both<double, Sequence>();
  check_both<double, Batch>();
}

TEST_CASE_TEMPLATE("and of each element type", T, float, bf16, fp16) { check_both<T, Sequence>(); }

TEST_CASE("gradients are those of differences, and messages those of the plan") {
  using Head = Sequential<Tanh, LastRows, ColumnParallelLinear<wide, 5>>;
  testing::check_on_ranks<Invariant>(Head{}, tokens, testing::up_to_rounding);
  testing::check_on_ranks<Sequence, Invariant>(Head{}, tokens, testing::up_to_rounding);
  testing::check_on_ranks<Batch, Invariant>(Head{}, tokens, testing::up_to_rounding);
}

// begin: last
using Trunk = Sequential<Linear<split::none, wide, 8>, Tanh>;
using Logits = ColumnParallelLinear<8, 11>;

using Trained = Sequential<Trunk, Logits>;            // [batch, sequence, 11]
using Written = Sequential<Trunk, LastRows, Logits>;  // [batch, 11]
// end: last

TEST_CASE("logits of the last tokens alone are those rows of all logits") {
  testing::run_on_ranks(3, [&](Ranks& group) {
    using Ctx = Context<double, Reference, Ranks>;
    const auto x = filled<double, Sequence>(tokens, place_of(group), number<double>);
    Model<Trained, Ctx, shardwise::Ends<Sequence, Invariant>> trained(Trained{}, group, Seed{4},
                                                                      tokens);
    Model<Written, Ctx, shardwise::Ends<Sequence, Invariant>, ForwardOnly> written(Written{}, group,
                                                                                   Seed{4}, tokens);
    written.set("2.weight", trained.gather("1.weight").view());
    written.set("2.bias", trained.gather("1.bias").view());
    const auto all = trained.evaluate(x.view(), {.segments = documents});
    CHECK(largest_difference_of_part(
              written.evaluate(x.view(), {.segments = documents}), [&](std::size_t i) {
                const std::size_t row = of_documents.last[i / 11];
                return row == none ? trained.gather("1.bias")[i % 11] : all[row * 11 + i % 11];
              }) < 1e-15);
  });
}

TEST_CASE("inputs that are no tokens are refused") {
  const auto message = [](const Shape& shape) {
    return testing::message_of<shape_error>([&] { LastRows{}.output_shape(shape); });
  };
  CHECK(message({{Axis::batch, 2}, {Axis::feature, 3}}) ==
        "the input is a tensor [batch 2, feature 3], but the last token of each sample is a row of "
        "[batch, sequence, feature]");
  CHECK(!message({{Axis::sequence, 2}, {Axis::feature, 3}}).empty());
  CHECK(!message({{Axis::batch, 2}, {Axis::sequence, 2}, {Axis::height, 3}}).empty());
}
