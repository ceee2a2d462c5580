// Attention at 1 to 8 ranks against its formula, and its gradients against differences of that
// formula: every layout, shared key heads, windows, segments, a soft cap, dropout, and every dtype.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/model/composition.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/model.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::filled;
using testing::Ranks;

namespace {

using Numbers = std::vector<double>;
using Feature = Sharded<Axis::feature>;
using Sequence = Sharded<Axis::sequence>;
using Batch = Sharded<Axis::batch>;

constexpr std::size_t samples = 2, length = 7, heads = 6, size = 3;

constexpr Shape tokens(std::size_t some_heads, std::size_t features = size) {
  return {{Axis::batch, samples}, {Axis::sequence, length}, {Axis::feature, some_heads, features}};
}

/// Numbers between -1 and 1 that no two operands share.
Numbers drawn(std::size_t count, std::uint64_t ordinal) {
  Numbers numbers(count);
  const RandomStream stream(Seed{7}, ordinal, 0);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = 2.0 * stream.uniform(i) - 1;
  return numbers;
}

struct Case {
  AttentionForm form{};
  AttentionScores scores{};
  std::vector<Segment> segments{};
  std::size_t features = size;  // of a head
  std::size_t zeros = 0;        // features in front of those of each head that are zero

  std::size_t key_heads() const { return heads / form.readers; }
};

/// Query, key and value of every token and head, and the gradient of the output.
struct Operands {
  Numbers q, k, v, dy;

  explicit Operands(const Case& of)
      : q(drawn(tokens(heads, of.features).elements(), 1)),
        k(drawn(tokens(of.key_heads(), of.features).elements(), 2)),
        v(drawn(k.size(), 3)),
        dy(drawn(q.size(), 4)) {}
};

/// Whether token `query` of the batch sees token `key`.
bool sees(const Case& of, std::size_t query, std::size_t key) {
  if (of.form.causal && key > query) return false;
  if (of.form.window > 0 && key + of.form.window <= query) return false;
  if (of.segments.empty()) return query / length == key / length;
  for (const Segment& one : of.segments) {
    const auto has = [&](std::size_t row) { return row >= one.row && row < one.row + one.rows; };
    if (has(query)) return has(key);
  }
  return false;
}

/// The definition: softmax(scale q kᵀ) v with all weights in one row of memory.
Numbers expected(const Case& of, const Operands& x) {
  const std::size_t features = of.features;
  const double scale =
      of.scores.scale > 0 ? of.scores.scale : 1 / std::sqrt(static_cast<double>(features));
  Numbers y(x.q.size());
  for (std::size_t query = 0; query < samples * length; ++query)
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t key_head = head / of.form.readers;
      const auto key_at = [&](std::size_t key) {
        return (key * of.key_heads() + key_head) * features;
      };
      const std::size_t at = (query * heads + head) * features;
      Numbers weights(samples * length);
      double sum = 0;
      for (std::size_t key = 0; key < weights.size(); ++key) {
        if (!sees(of, query, key)) continue;
        double score = 0;
        for (std::size_t d = 0; d < features; ++d)
          score += scale * x.q[at + d] * x.k[key_at(key) + d];
        if (of.scores.soft_cap > 0)
          score = of.scores.soft_cap * std::tanh(score / of.scores.soft_cap);
        sum += weights[key] = std::exp(score);
      }
      for (std::size_t key = 0; sum > 0 && key < weights.size(); ++key)
        for (std::size_t d = 0; d < features; ++d)
          y[at + d] += weights[key] / sum * x.v[key_at(key) + d];
    }
  return y;
}

/// By central differences of Σ y dy; `of_operand` is one of x's.
Numbers slopes(const Case& of, Operands x, Numbers Operands::*of_operand) {
  const double step = 1e-5;
  const auto total = [&] {
    const Numbers y = expected(of, x);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * x.dy[i];
    return sum;
  };
  Numbers slope((x.*of_operand).size());
  for (std::size_t i = 0; i < slope.size(); ++i) {
    double& number = (x.*of_operand)[i];
    const double before = number;
    number = before + step;
    const double above = total();
    number = before - step;
    slope[i] = (above - total()) / (2 * step);
    number = before;
  }
  return slope;
}

/// The largest difference of the rank's part from the whole tensor.
template <class V>
double difference(const V& view, const Numbers& whole) {
  return testing::largest_difference_of_part(view, [&](std::size_t i) { return whole[i]; });
}

template <class T, Layout L>
auto part(const Numbers& whole, const Shape& shape, Place place) {
  using Given = std::conditional_t<std::is_same_v<T, double>, double, float>;
  return filled<T, L>(shape, place, [&](std::size_t i) { return static_cast<Given>(whole[i]); });
}

/// The same numbers with so many zeros in front of those of each head.
Numbers behind(std::size_t zeros, const Numbers& numbers) {
  Numbers wide(numbers.size() / size * (zeros + size));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    wide[i / size * (zeros + size) + zeros + i % size] = numbers[i];
  return wide;
}

template <AttentionForm Form>
struct Attention : Graph<3, At<Attend<Form>, 0, 1, 2>> {
  using Graph<3, At<Attend<Form>, 0, 1, 2>>::Graph;
};

/// Some batches of one step in T; see(i, view) is called for y and then for dq, dk and dv of each.
template <class T, AttentionForm Form, Layout In, class C, class See>
void attend(C& group, const Case& of, const Operands& x, int batches, See see) {
  const Place place = place_of(group);
  const std::size_t features = of.zeros + of.features;
  const Shape queries = tokens(heads, features), keys = tokens(of.key_heads(), features);
  const auto layer = Attend<Form>(of.scores).with_heads(features == 1 ? heads : 0);
  Model<Attention<Form>, Context<T, Reference, C>, Ends<Layouts<In, In, In>, In>,
        TrainWithInputGradient>
      model(Attention<Form>(layer), group, Seed{1}, {queries, keys, keys});
  const auto q = part<T, In>(x.q, queries, place);
  const auto k = part<T, In>(x.k, keys, place);
  const auto v = part<T, In>(x.v, keys, place);
  const auto dy = part<T, In>(x.dy, queries, place);
  for (int batch = 0; batch < batches; ++batch) {
    see(std::size_t{0}, model.forward({q.view(), k.view(), v.view()}, {.segments = of.segments}));
    const auto [dq, dk, dv] = model.backward(dy.view());
    see(std::size_t{1}, dq);
    see(std::size_t{2}, dk);
    see(std::size_t{3}, dv);
  }
}

/// y, dq, dk and dv.
std::array<Numbers, 4> by_formula(const Case& of, const Operands& x) {
  return {expected(of, x), slopes(of, x, &Operands::q), slopes(of, x, &Operands::k),
          slopes(of, x, &Operands::v)};
}

template <AttentionForm Form, Layout In>
void check_layout(const Case& of, const Operands& x, const std::array<Numbers, 4>& right) {
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    CAPTURE(layout_name<In>());
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      attend<double, Form, In>(group, of, x, 1, [&](std::size_t i, const auto& view) {
        CHECK(difference(view, right[i]) < (i == 0 ? 1e-14 : 1e-9));
      });
    });
  }
}

template <AttentionForm Form>
void check(AttentionScores scores = {}, const std::vector<Segment>& segments = {},
           std::size_t features = size) {
  const Case of{Form, scores, segments, features};
  const Operands x(of);
  const std::array<Numbers, 4> right = by_formula(of, x);
  check_layout<Form, Invariant>(of, x, right);
  check_layout<Form, Feature>(of, x, right);
  check_layout<Form, Sequence>(of, x, right);
  check_layout<Form, Batch>(of, x, right);
}

/// Two packed documents and two rows of padding in the first sample, one document in the second.
const std::vector<Segment> documents{{0, 2}, {2, 3, 5}, {8, 6}};

std::string error_of(const std::vector<Segment>& segments, const Shape& keys = tokens(heads)) {
  using Net = Attention<AttentionForm{}>;
  return testing::message_of([&] {
    SingleRank alone;
    Model<Net, Context<float, Reference, SingleRank>,
          Ends<Layouts<Invariant, Invariant, Invariant>, Invariant>>
        model(Net{}, alone, Seed{1}, {tokens(heads), keys, keys});
    const Tensor<float, Invariant> q(tokens(heads));
    model.evaluate({q.view(), q.view(), q.view()}, {.segments = segments});
  });
}

}  // namespace

TEST_CASE("attention and its gradients by formula, in every layout") {
  check<AttentionForm{}>();
  check<AttentionForm{.causal = false}>();
  check<AttentionForm{.readers = 3}>();
  check<AttentionForm{.readers = heads, .causal = false}>();
  check<AttentionForm{.readers = 2, .window = 3}>();
  check<AttentionForm{.window = 1}>();
  check<AttentionForm{.readers = 2}>({.scale = 1.5, .soft_cap = 0.75});
}

TEST_CASE("heads of one feature") {
  check<AttentionForm{}>({}, {}, 1);
  check<AttentionForm{.readers = 3, .causal = false}>({.soft_cap = 0.75}, documents, 1);
  check<AttentionForm{.readers = heads, .window = 3}>({}, {}, 1);
}

// Loops take 64 features at a time. Zeros in front of a head's features change nothing.
TEST_CASE("features of a head behind its first 64") {
  constexpr AttentionForm form{.readers = 2};
  Case of{form, {.scale = 1.5, .soft_cap = 0.75}};
  Operands x(of);
  std::array<Numbers, 4> right = by_formula(of, x);
  of.zeros = 64;
  for (Numbers* numbers : {&x.q, &x.k, &x.v, &x.dy, &right[0], &right[1], &right[2], &right[3]})
    *numbers = behind(of.zeros, *numbers);
  check_layout<form, Invariant>(of, x, right);
}

TEST_CASE("a token sees its own document, and padding nothing") {
  check<AttentionForm{.readers = 3}>({}, documents);
  check<AttentionForm{.readers = 2, .causal = false}>({}, documents);
  check<AttentionForm{.window = 2}>({}, documents);
}

namespace {

constexpr AttentionForm dropping{.readers = 2, .dropped = 1, .of = 4};
constexpr AttentionForm in_window{.readers = 2, .window = 3, .dropped = 1, .of = 4};

/// Output, dq, dk and dv of the last of some batches of a step.
template <Layout In, AttentionForm Form = dropping>
std::array<Numbers, 4> with_dropout(int ranks, const Operands& x, int batches = 2) {
  std::array<Numbers, 4> all{Numbers(x.q.size()), Numbers(x.q.size()), Numbers(x.k.size()),
                             Numbers(x.k.size())};
  run_ranks(ranks, [&](ThreadCommunicator& group) {
    const std::size_t features = x.q.size() / tokens(heads, 1).elements();
    attend<double, Form, In>(
        group, {.form = Form, .features = features}, x, batches,
        [&](std::size_t i, const auto& view) {
          for_each_global_run(view, [&](std::size_t global, std::size_t local, std::size_t count) {
            for (std::size_t n = 0; n < count; ++n) all[i][global + n] = view[local + n];
          });
        });
  });
  return all;
}

double product(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void check_dropout(std::size_t features) {
  const Case without{.form = {.readers = 2}, .features = features};
  Operands x(without);
  const std::array<Numbers, 4> alone = with_dropout<Invariant>(1, x);
  const std::array<Numbers, 4> alone_in_window = with_dropout<Invariant, in_window>(1, x);
  CHECK(testing::largest_difference(alone[0], expected(without, x)) > 0.1);
  for (const int ranks : {2, 3, 4, 8}) {
    CAPTURE(ranks);
    const auto check_same = [](const auto& found, const auto& right) {
      for (std::size_t i = 0; i < 4; ++i) {
        CAPTURE(i);
        CHECK(testing::largest_difference(found[i], right[i]) < 1e-14);
      }
    };
    check_same(with_dropout<Feature>(ranks, x), alone);
    check_same(with_dropout<Sequence>(ranks, x), alone);
    check_same(with_dropout<Batch>(ranks, x), alone);
    check_same(with_dropout<Sequence, in_window>(ranks, x), alone_in_window);
  }
  CHECK(testing::largest_difference(with_dropout<Invariant>(1, x, 1)[0], alone[0]) > 0.1);
  // y is linear in v, so <y, dy> is <v, dv> with the same mask.
  CHECK(std::abs(product(alone[0], x.dy) - product(x.v, alone[3])) < 1e-12);
  Operands moved = x;
  for (std::size_t i = 0; i < x.q.size(); ++i) moved.q[i] += 1e-6 * x.dy[i];
  const double slope =
      (product(with_dropout<Invariant>(1, moved)[0], x.dy) - product(alone[0], x.dy)) / 1e-6;
  CHECK(std::abs(slope - product(alone[1], x.dy)) < 1e-5);
}

}  // namespace

TEST_CASE("dropped weights are the same at every number of ranks, and in backward") {
  check_dropout(size);
  check_dropout(1);
}

TEST_CASE("a dropped weight is zero, and the others are larger") {
  constexpr std::size_t many = 64;
  constexpr Shape shape{{Axis::sequence, many}, {Axis::feature, 1, many}};
  using Net = Attention<AttentionForm{.causal = false, .dropped = 1, .of = 4}>;
  SingleRank alone;
  Model<Net, Context<double, Reference, SingleRank>,
        Ends<Layouts<Invariant, Invariant, Invariant>, Invariant>>
      model(Net{}, alone, Seed{1}, {shape, shape, shape});
  const Tensor<double, Invariant> zeros(shape);
  const auto one_of_each = filled<double, Invariant>(
      shape, {}, [](std::size_t i) { return i / many == i % many ? 1.0 : 0.0; });
  const auto y = model.forward({zeros.view(), zeros.view(), one_of_each.view()});
  std::size_t dropped = 0, wrong = 0;
  for (const double weight : y.span()) {
    if (weight == 0) ++dropped;
    if (weight != 0 && !(std::abs(weight - 4.0 / 3 / many) <= 1e-15)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(std::abs(static_cast<double>(dropped) / (many * many) - 0.25) < 0.03);
  const auto all = model.evaluate({zeros.view(), zeros.view(), one_of_each.view()});
  CHECK(std::abs(all[5] - 1.0 / many) < 1e-15);

  const auto ones = filled<double, Invariant>(shape, {}, [](std::size_t) { return 1.0; });
  const auto keys = filled<double, Invariant>(shape, {}, [](std::size_t i) {
    return i < many ? -std::numeric_limits<double>::infinity() : 0.0;
  });
  const auto without_first = model.evaluate({ones.view(), keys.view(), one_of_each.view()});
  CHECK(without_first[0] == 0);  // the first score of each row is minus infinity
  CHECK(std::abs(without_first[1] - 1.0 / (many - 1)) < 1e-15);
}

TEST_CASE_TEMPLATE("sums of short dtypes are rounded once", T, float, bf16, fp16) {
  // Half a unit in the last place of numbers below 1, of which float needs some for its sums.
  const double bound = std::same_as<T, float> ? 1e-6 : std::same_as<T, bf16> ? 0x1p-9 : 0x1p-12;
  const Case of{.form = {.readers = 2}};
  Operands x(of);
  for (Numbers* numbers : {&x.q, &x.k, &x.v, &x.dy})
    for (double& number : *numbers)
      number = static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(number))));
  const std::array<Numbers, 4> right = by_formula(of, x);
  run_ranks(4, [&](ThreadCommunicator& group) {
    attend<T, AttentionForm{.readers = 2}, Feature>(
        group, of, x, 1, [&](std::size_t i, const auto& view) {
          CHECK(difference(view, right[i]) <=
                (i < 2 ? bound : 4 * bound));  // ranks sum rounded summands
        });
  });
}

TEST_CASE("wrong segments and heads are told") {
  check_mentions(error_of({{0, 7}, {6, 1}}),
                 {"segment 1 is rows 6 to 7 (without the last) of a batch "
                  "[batch 2, sequence 7, feature 6*3]: it overlaps"});
  check_mentions(error_of({{5, 3}}), {"lies in several samples"});
  check_mentions(error_of({{13, 2}}), {"leaves the batch"});
  check_mentions(error_of({{13, std::numeric_limits<std::size_t>::max()}}), {"leaves the batch"});
  check_mentions(error_of({{3, 0}}), {"has no rows"});
  check_mentions(error_of({}, tokens(2)), {"1 times as many query heads as key heads"});
  check_mentions(error_of({}, tokens(heads, 1)), {"heads of the same size"});
  check_mentions(error_of({{0, 2, std::numeric_limits<std::size_t>::max()}}), {"too large"});
  CHECK(error_of({{0, 7}}) == "");
  const auto refused = [](const Attend<>& attend, const Shape& x) {
    return testing::message_of<shape_error>([&] { attend.output_shape({x, x, x}); });
  };
  const Shape plain{{Axis::batch, samples}, {Axis::sequence, length}, {Axis::feature, 18}};
  CHECK(refused({}, plain) ==
        "an attention is given queries [batch 2, sequence 7, feature 18], which are 18 heads of "
        "size 1: make queries, keys and values with HeadLinear or in_units_of(size), or say that "
        "this is right with Attend::with_heads(18)");
  CHECK(refused(Attend<>{}.with_heads(18), plain).empty());
  check_mentions(refused(Attend<>{}.with_heads(heads), plain),
                 {"an attention of 6 heads is given", "which are 18 heads of size 1"});
  check_mentions(refused(Attend<>{}.with_heads(3), tokens(heads)),
                 {"an attention of 3 heads is given", "which are 6 heads of size 3"});
  CHECK(refused(Attend<>{}.with_heads(heads), tokens(heads)).empty());
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_WITH_AS(Attend<>({.scale = wrong}), doctest::Contains("finite numbers"),
                         argument_error);
    CHECK_THROWS_AS(Attend<>({.soft_cap = wrong}), argument_error);
  }
  CHECK_THROWS_WITH_AS((HeadLinear<3, 2, 2>{}.in_units_of(3)),
                       doctest::Contains("4 output features are no whole number of units of 3"),
                       argument_error);
}

namespace {

/// Attention of one input with itself.
struct Alone : Join<Attend<>, Identity, Identity, Identity> {};

}  // namespace

TEST_CASE("segments are those of one batch") {
  SingleRank alone;
  Model<Alone, Context<double, Reference, SingleRank>> model(Alone{}, alone, Seed{1},
                                                             tokens(heads));
  const auto x = part<double, Invariant>(drawn(tokens(heads).elements(), 1), tokens(heads), {});
  const auto numbers = [&](const auto& view) {
    return Numbers(view.data(), view.data() + view.size());
  };
  const Numbers whole = numbers(model.evaluate(x.view()));
  const Numbers packed = numbers(model.evaluate(x.view(), {.segments = documents}));
  CHECK(testing::largest_difference(whole, packed) > 0.1);
  CHECK(numbers(model.evaluate(x.view())) == whole);
  model.evaluate(x.view(), {.segments = documents});
  const Shape shorter{{Axis::batch, samples}, {Axis::sequence, 2}, {Axis::feature, heads, size}};
  CHECK_THROWS_AS(model.run().pass.flight->sequences.of(shorter), shape_error);
}

TEST_CASE("segments that are refused leave no forward to go back from") {
  SingleRank alone;
  Model<Alone, Context<double, Reference, SingleRank>, Ends<Invariant, Invariant>,
        TrainWithInputGradient>
      model(Alone{}, alone, Seed{1}, tokens(heads));
  const auto x = part<double, Invariant>(drawn(tokens(heads).elements(), 1), tokens(heads), {});
  model.forward(x.view(), {.segments = documents});
  CHECK_THROWS_AS(model.forward(x.view(), {.segments = std::vector<Segment>{{0, 100}}}),
                  argument_error);
  CHECK_THROWS_AS(model.backward(x.view()), argument_error);
}

TEST_CASE("the search for a NaN runs on the segments of the batch") {
  SingleRank alone;
  Model<Alone, Context<double, Reference, SingleRank>, Ends<Invariant, Invariant>,
        TrainWithInputGradient>
      model(Alone{}, alone, Seed{1}, tokens(heads));
  auto x = part<double, Invariant>(Numbers(tokens(heads).elements()), tokens(heads), {});
  x[0] = std::numeric_limits<double>::quiet_NaN();  // row 0
  const std::vector<Segment> without_row_0{{1, length - 1}};
  model.forward(x.view(), {.segments = without_row_0});
  CHECK_NOTHROW(model.find_non_finite(x.view()));
  model.forward(x.view());
  CHECK_THROWS_AS(model.find_non_finite(x.view()), numeric_error);
}
