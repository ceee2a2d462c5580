// Models on meshes whose ranks along `context` have different tokens of each sample. Everything is
// as on one rank.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ranks/model_mesh.hpp"
#include "shardwise/data/row_batch.hpp"
#include "shardwise/shardwise.hpp"
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/evaluate_loss.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"

using namespace shardwise;

namespace {

using testing::check_mentions;
using testing::largest_difference;
using testing::message_of;
using namespace testing::on_meshes;

constexpr std::size_t vocabulary = 13, wide = 12, heads = 6, size = 2;

template <std::size_t Count>
using Heads =
    HeadLinear<wide, Count, size, false>;  // Adam would amplify the rounding of a key's bias
template <std::size_t Count>
using TurnedHeads = Sequential<Heads<Count>, Rope>;

/// A window that is longer than the part of a rank, three query heads for each key head, and
/// positions by turns.
using Windowed = Join<Attend<AttentionForm{.readers = 3, .window = 3}>, TurnedHeads<heads>,
                      TurnedHeads<2>, Heads<2>>;
/// As in BERT: a token sees all of its segment.
using BothWays = Join<Attend<AttentionForm{.causal = false, .dropped = 1, .of = 10}>, Heads<heads>,
                      Heads<heads>, Heads<heads>>;

struct Reader : Sequential<Embedding<vocabulary, wide>, PositionEmbedding<9, wide>,
                           Residual<Sequential<RmsNorm<wide>, Windowed, Dropout<1, 10>,
                                               RowParallelLinear<wide, wide>>>,
                           Residual<Sequential<LayerNorm<wide>, BothWays,
                                               RowParallelLinear<wide, wide>, Dropout<1, 10>>>,
                           LayerNorm<wide>, ColumnParallelLinear<wide, vocabulary>> {};

template <class C>
using ReaderIn = Model<Reader, C, Ends<Replicated, Sharded<Axis::feature>>>;
using Reading = ReaderIn<OnMesh>;
using Ids = SamplesOverMesh<Replicated>;

constexpr Shape text(std::size_t samples) { return {{Axis::batch, samples}, {Axis::sequence, 5}}; }

/// Token ids, or labels, of which some are ignored; the same for all meshes.
template <Layout L>
Tensor<std::int32_t, L> tokens(std::size_t samples, std::size_t first, const MeshPlace& place,
                               std::size_t ignored_each = 0) {
  return filled<std::int32_t, L>(text(samples), place, [=](std::size_t i) {
    const std::size_t n = i + first;
    return ignored_each > 0 && i % ignored_each == 2
               ? -100
               : static_cast<std::int32_t>(n * n % vocabulary);
  });
}

/// Steps of two batches of 3 and 2 samples, the first in segments, with labels that are ignored.
Trained trained(Ranks& ranks, Keep keep = Keep::whole, bool sums_in_shares = false) {
  const MeshPlace& place = ranks.place();
  Reading model(Reader{}, ranks, Seed{5}, text(dynamic),
                {.bucket_bytes = 80, .sums_in_shares = sums_in_shares});
  Optimizer optimizer(model, AdamW{.learning_rate = 0.01}, keep);
  // Two documents in the first sample, one with padding in the second, which begins at 2.
  const std::vector<Segment> segments{{0, 2, 0}, {2, 3, 0}, {5, 4, 2}, {10, 5, 0}};
  Trained result;
  for (std::size_t n = 0; n < 3; ++n) {
    const MaskedCrossEntropy loss{.counted = 13 + 9};
    Step step(optimizer, 5, {.clip_norm = 0.3});
    result.losses.push_back(step.add(tokens<Ids>(3, n, place).view(),
                                     tokens<Invariant>(3, n + 1, place, 7).view(), loss, segments));
    result.losses.push_back(step.add(tokens<Ids>(2, n + 2, place).view(),
                                     tokens<Whole>(2, n + 3, place, 9).view(), loss));
    result.norms.push_back(*step.finish().norm);
  }
  CHECK(replicas_are_equal(model, ranks));
  result.weights = weights_of(model);
  const auto ids = tokens<Ids>(3, 7, place);
  const auto next = tokens<Whole>(3, 8, place);
  result.evaluated = evaluate_loss(model, ids.view(), next.view(), CrossEntropy{});
  result.correct = count_top_k(model, ids.view(), next.view(), 3);
  return result;
}

/// The losses of three steps in the dtypes of P.
template <class P>
Numbers losses_of_reader(Ranks& ranks) {
  ReaderIn<Context<P, Reference, Ranks>> model(Reader{}, ranks, Seed{5}, text(dynamic));
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
  Numbers losses;
  for (std::size_t n = 0; n < 3; ++n)
    losses.push_back(train_step(model, tokens<Ids>(3, n, ranks.place()).view(),
                                tokens<Whole>(3, n + 1, ranks.place()).view(), CrossEntropy{},
                                optimizer));
  return losses;
}

}  // namespace

TEST_CASE("attention, positions, dropout and losses are those of one rank where tokens are cut") {
  const Trained one = on_one_rank([](Ranks& ranks) { return trained(ranks); });
  CHECK(one.losses.back() > 0.5);
  for (const mesh& sizes : contexts) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [&](Ranks& ranks) {
      const Trained many = trained(ranks);
      check_alike(many, one);
      if (sizes.data > 1) {
        const Trained cut = trained(ranks, Keep::state_over_data);
        CHECK(cut.weights == many.weights);
        CHECK(cut.norms == many.norms);
        CHECK(trained(ranks, Keep::whole, true).weights == many.weights);
      }
    });
  }
}

TEST_CASE("what ranks along context send for an attention is planned") {
  for (const mesh& sizes : contexts) {
    CAPTURE(to_string(sizes));
    for (const Keep keep : {Keep::whole, Keep::state_over_data})
      on_mesh(sizes, [&](Ranks& ranks) {
        Reading model(Reader{}, ranks, Seed{5}, text(dynamic));
        Optimizer optimizer(model, AdamW{}, keep);
        clear_calls(ranks);
        train_step(model, tokens<Ids>(3, 0, ranks.place()).view(),
                   tokens<Whole>(3, 1, ranks.place()).view(), CrossEntropy{}, optimizer);
        check_counts(ranks, plan_step(model, text(3), CrossEntropy{}, {}, keep));
      });
  }
}

TEST_CASE("rows of a program's own memory are cut by tokens, too") {
  std::vector<std::int32_t> ids(4 * 5);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  on_mesh({.data = 2, .context = 3}, [&](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    RowBatch<std::int32_t, Whole> rows_of(ids, {{Axis::sequence, 5}}, place);
    DistributedSampler sampler(rows_of.count(), place, {.batch_size = 4, .shuffles = false});
    const auto batch = rows_of.gather(sampler.next());
    bool alike = true;
    for_each_global_run(batch, [&](std::size_t global, std::size_t local, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) alike &= batch[local + i] == ids[global + i];
    });
    CHECK(alike);
    CHECK(batch.size() ==
          2 * std::vector<std::size_t>{2, 2, 1}[static_cast<std::size_t>(place[context].rank)]);
    check_mentions(message_of<shape_error>([&] {
                     RowBatch<std::int32_t, Whole>(ids, {{Axis::feature, 5}}, place);
                   }),
                   {"has no rows of tokens"});
  });
}

namespace {

/// Neither the token in front nor the mask is that of a rank's part.
struct Lined : Sequential<ClassToken<3>, Dropout<1, 4>, FlattenFrom<Axis::sequence>> {};
using OfSamples = Ends<Invariant, SamplesOverMesh<Invariant, Axis::batch>>;
inline const Shape streams{{Axis::batch, 4}, {Axis::sequence, 5}, {Axis::feature, 3}};

/// What a model gives, and the gradient of its input, with the plan of both.
template <class Net>
std::pair<Numbers, Numbers> given(Ranks& ranks, std::span<const Segment> segments = {}) {
  const MeshPlace& place = ranks.place();
  Model<Net, OnMesh, OfSamples, TrainWithInputGradient> model(Net{}, ranks, Seed{5}, streams);
  if constexpr (std::same_as<Net, Lined>)
    model.set("0.weight", made<Invariant>(3, {{Axis::feature, 3}}, place).view());
  clear_calls(ranks);
  const auto x = made<Whole>(1, streams, place);
  const auto y = model.forward(x.view(), {.segments = segments});
  using Given = SamplesOverMesh<Invariant, Axis::batch>;
  const auto dx = model.backward(made<Given>(2, y.global(), place).view());
  model.discard_step();
  Plan sent =
      plan_of<OfSamples, TrainWithInputGradient>(Net{}, ranks.sizes(), streams, {Dtype::float64});
  sent.settle = {};
  check_counts(ranks, sent);
  return {whole(ranks, y), whole(ranks, dx)};
}

}  // namespace

TEST_CASE("the last token of a sample and its gradient are on one rank, wherever the sample ends") {
  // Of the samples the last one is empty, and the others end after 5, 3 and 1 tokens.
  const std::vector<Segment> segments{{0, 2, 0}, {2, 3, 0}, {5, 3, 0}, {10, 1, 0}};
  Numbers y(4 * 3), dx(4 * 5 * 3);
  for (std::size_t i = 0; i < 9; ++i) {
    const std::size_t at = std::array<std::size_t, 3>{4, 7, 10}[i / 3] * 3 + i % 3;
    y[i] = witness::made(1, static_cast<std::int64_t>(at));
    dx[at] = witness::made(2, static_cast<std::int64_t>(i));
  }
  for (const mesh& sizes : contexts) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes,
            [&](Ranks& ranks) { CHECK(given<LastRows>(ranks, segments) == std::pair(y, dx)); });
  }
}

TEST_CASE("a token in front, a mask and lines of whole samples are those of one rank") {
  const auto one = on_one_rank([](Ranks& ranks) { return given<Lined>(ranks); });
  for (std::size_t i = 0; i < one.first.size(); ++i) {
    const std::size_t at = i % 18;
    const auto n = static_cast<std::int64_t>(at < 3 ? at : i / 18 * 15 + at - 3);
    const double kept = witness::made(at < 3 ? 3 : 1, n) * 4 / 3;
    CHECK((one.first[i] == 0 || one.first[i] == doctest::Approx(kept)));
  }
  for (const mesh& sizes : contexts) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [&](Ranks& ranks) { CHECK(given<Lined>(ranks) == one); });
  }
}

namespace {

/// y = x + Σ x over all elements of the batch. Its sum runs along every axis of a mesh.
struct AddsSum : KeepsOneOf<Invariant, Sharded<Axis::batch>, Sharded<Axis::sequence>> {
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool keeps_shape = true;
  template <Layout In>
  using exchanges =
      std::tuple<Exchange<std::conditional_t<ShardedLayout<In>, Redistribute<Partial, Replicated>,
                                             Redistribute<In, In>>>>;
  constexpr std::array<Shape, 1> exchange_shapes(const Shape&) const { return {}; }
  constexpr Shape output_shape(const Shape& x) const { return x; }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    auto mine = frame.template exchange_input<0>();
    mine.writable()[0] = sum_of(x);
    add(x, frame.template exchange<0>(std::move(mine)).view()[0], y);
  }
  /// dx = dy + Σ dy
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    auto mine = frame.template adjoint_input<0>();
    mine.writable()[0] = sum_of(dy);
    const auto total = frame.template exchange_adjoint<0>(std::move(mine));
    if constexpr (Frame::input_gradient) add(dy, total.view()[0], dx);
  }

 private:
  static double sum_of(const auto& x) {
    return std::accumulate(x.data(), x.data() + x.size(), 0.0);
  }
  static void add(const auto& x, double number, const auto& y) {
    for (std::size_t i = 0; i < x.size(); ++i) y.data()[i] = x[i] + number;
  }
};

}  // namespace

TEST_CASE("a sum that a layer exchanges is that of all tokens of all samples") {
  const auto with_sum = [](std::int64_t seed, std::size_t elements) {
    Numbers numbers(elements);
    for (std::size_t i = 0; i < elements; ++i)
      numbers[i] = witness::made(seed, static_cast<std::int64_t>(i));
    const double sum = std::accumulate(numbers.begin(), numbers.end(), 0.0);
    for (double& number : numbers) number += sum;
    return numbers;
  };
  using Net = Sequential<AddsSum, FlattenFrom<Axis::sequence>>;
  const auto by_formula = std::pair(with_sum(1, 4 * 5 * 3), with_sum(2, 4 * 5 * 3));
  for (const mesh& sizes : contexts) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [&](Ranks& ranks) { CHECK(given<Net>(ranks) == by_formula); });
  }
}

TEST_CASE("the statistics of a batch normalisation are those of all tokens of all samples") {
  using Normed = Sequential<BatchNorm<3>, FlattenFrom<Axis::sequence>>;
  const auto one = on_one_rank([](Ranks& ranks) { return given<Normed>(ranks); });
  for (const mesh& sizes : contexts) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [&](Ranks& ranks) {
      const auto [y, dx] = given<Normed>(ranks);
      CHECK(largest_difference(y, one.first) < 1e-14);
      CHECK(largest_difference(dx, one.second) < 1e-14);
    });
  }
}

namespace {

struct Copies {
  static constexpr Saves saves = Saves::nothing;
  constexpr Shape output_shape(const Shape& x) const { return x; }
  template <class Frame, class X, class Y>
  void forward(Frame&, const X& x, const Y& y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y.data()[i] = x[i];
  }
};
/// Does not say what it reads of tokens that are split.
struct Unsaid : Copies, KeepsOneOf<Invariant, Sharded<Axis::batch>> {};
/// Gathers numbers of tokens, and only sums run along other axes than `tensor`.
struct GathersTokens : Copies,
                       KeepsOneOf<Invariant, Sharded<Axis::batch>, Sharded<Axis::sequence>> {
  template <Layout In>
  using exchanges = std::tuple<Exchange<Redistribute<
      In, std::conditional_t<std::same_as<In, Sharded<Axis::sequence>>, Replicated, In>>>>;
  constexpr std::array<Shape, 1> exchange_shapes(const Shape& x) const { return {x}; }
};
/// Exchanges something of tokens, and nothing, or in another way, for its layout along `tensor`.
template <class Other>
struct ExchangesTokens : Copies,
                         KeepsOneOf<Invariant, Sharded<Axis::batch>, Sharded<Axis::sequence>> {
  template <Layout In>
  using exchanges =
      std::conditional_t<std::same_as<In, Sharded<Axis::sequence>>,
                         std::tuple<Exchange<Redistribute<Partial, Replicated>>>, Other>;
  constexpr auto exchange_shapes(const Shape&) const {
    return std::array<Shape, std::tuple_size_v<Other>>{};
  }
};
/// Adds up a number of each token, as if all ranks had the same tokens.
struct AddsTokens : Copies, KeepsOneOf<Invariant, Sharded<Axis::batch>, Sharded<Axis::sequence>> {
  template <Layout In>
  using exchanges = std::tuple<Exchange<Redistribute<Partial, Replicated>>>;
  constexpr std::array<Shape, 1> exchange_shapes(const Shape& x) const {
    return {x.without_back()};
  }
};
/// Says that it keeps tokens, but gives half as many.
struct Halves : Copies, KeepsOneOf<Invariant, Sharded<Axis::batch>, Sharded<Axis::sequence>> {
  constexpr Shape output_shape(Shape x) const {
    x[1].units /= 2;
    return x;
  }
};
/// A merge that reads tokens in front of its own.
struct Looks : Sum {
  static constexpr bool passes_gradient = false;
  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<std::same_as<Offered, Sharded<Axis::sequence>>,
                                          Haloed<Axis::sequence, Window{.before = 1}>, Offered>;
  template <Layout In>
  using output_layout = std::conditional_t<HaloedLayout<In>, Sharded<Axis::sequence>, In>;
};

}  // namespace

TEST_CASE("what cannot be cut by tokens is refused on every rank before it sends anything") {
  on_mesh({.context = 2, .tensor = 2}, [](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    Reading model(Reader{}, ranks, Seed{5}, text(dynamic));
    // The halo of a window cannot go along tensor and along context.
    using Bare = Join<Attend<AttentionForm{.window = 3}>, Identity, Identity, Identity>;
    using InShards =
        Model<Bare, OnMesh, Ends<Sharded<Axis::sequence>, Sharded<Axis::sequence>>, ForwardOnly>;
    check_mentions(message_of<argument_error>([&] { InShards(ranks, Seed{1}); }),
                   {"a halo goes along one axis only"});
    using Ended = Sequential<Embedding<vocabulary, wide>, To<Invariant>, Unsaid>;
    check_mentions(message_of<argument_error>([&] {
                     Model<Ended, OnMesh, Ends<Invariant, Invariant>, ForwardOnly>(
                         Ended{}, ranks, Seed{1}, text(dynamic));
                   }),
                   {"2: ", "may read several tokens of a sample"});
    const auto refuses = [&]<class L>(L layer, std::initializer_list<std::string> parts) {
      check_mentions(message_of<argument_error>([&] {
                       Model<L, OnMesh, Ends<Invariant, Invariant>, ForwardOnly>(layer, ranks,
                                                                                 Seed{1}, streams);
                     }),
                     parts);
    };
    const auto refuses_tokens = [&](const auto& layer) {
      refuses(layer, {"may read several tokens of a sample", "Sharded<Axis::sequence>"});
    };
    const std::string unlike =
        "exchanges something for Sharded<Axis::sequence> that it does not exchange";
    refuses(ExchangesTokens<std::tuple<>>{}, {unlike, "the same exchanges"});
    refuses(
        ExchangesTokens<std::tuple<Exchange<Redistribute<Invariant, Invariant>, Reduction::max>>>{},
        {unlike});
    refuses(ExchangesTokens<std::tuple<
                Exchange<Redistribute<Invariant, Invariant>, Reduction::sum, std::int32_t>>>{},
            {unlike});
    refuses(AddsTokens{}, {"exchange 0 of the layer is a tensor [batch 4, sequence 5]",
                           "ranks along context have the numbers of different samples, tokens"});
    refuses_tokens(Sequential<GathersTokens>{});
    refuses_tokens(Sequential<Halves>{});
    refuses_tokens(Join<Looks, Identity, Identity>{});
    using Line = Model<Lined, OnMesh, OfSamples, ForwardOnly>;
    Shape other = streams;
    other[1].units = dynamic;
    check_mentions(message_of<argument_error>([&] { Line(Lined{}, ranks, Seed{1}, other); }),
                   {"0: ClassToken<3>", "different tokens", "their number is not known"});
    other[1].units = 6;
    Line line(Lined{}, ranks, Seed{1}, other);
    check_mentions(
        message_of<argument_error>([&] { line.evaluate(made<Whole>(1, streams, place).view()); }),
        {"different tokens", "it must have as many as the shape"});
    const Shape few{{Axis::batch, 3}, {Axis::sequence, 12}};
    const auto too_long = filled<std::int32_t, Ids>(few, place, [](std::size_t) { return 1; });
    check_mentions(message_of<shape_error>([&] { model.evaluate(too_long.view()); }),
                   {"sequence 12", "sequence 5"});
    check_mentions(message_of<shape_error>([&] {
                     detail::require_cut_of_batch(detail::name_of<Reader>, few,
                                                  detail::sliced_axes(text(3), place));
                   }),
                   {"sequence 12", "the first one has 5 tokens"});
    auto target = tokens<Invariant>(3, 1, place);
    target[8] = 20;  // token 3 of sample 1, in the second part
    check_mentions(message_of<argument_error>([&] {
                     evaluate_loss(model, tokens<Ids>(3, 0, place).view(), target.view(),
                                   CrossEntropy{});
                   }),
                   {"slice from sample 0 and token 3 on: label 20 of row 2 is no class"});
  });
}

TEST_CASE("in float, bf16 and fp16 the losses are those of one rank, but for rounding") {
  const std::vector<mesh> two{{.context = 2}, {.data = 2, .context = 3, .tensor = 2}};
  check_as_on_one_rank(losses_of_reader<float>, 0x1p-19, two);
  check_as_on_one_rank(losses_of_reader<Precision<bf16, float>>, 0x1p-5, two);
  check_as_on_one_rank(losses_of_reader<Precision<fp16, float>>, 0x1p-8, two);
}
