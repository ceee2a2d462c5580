// Tokens that follow those of a KeyValueCache have the logits of their whole sequence: those of
// transformers for each way to cut a text, and those of an evaluation without a cache for packed
// and padded sequences, in each layout, dtype and order.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "ranks/transformers.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_mesh.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/model/key_value_cache.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/gpt2_files.hpp"
#include "shardwise/models/last_logits.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/llama_files.hpp"
#include "shardwise/models/parallelism.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::filled;
using testing::largest_difference_of_part;
using testing::message_of;
using testing::Ranks;
using testing::transformers::directory;
using testing::transformers::text;
using testing::transformers::token;

namespace {

constexpr Shape any_text{{Axis::batch, dynamic}, {Axis::sequence, dynamic}};

/// Lengths of the pieces in which a text of 11 tokens is evaluated.
const std::vector<std::vector<std::size_t>> cuts{
    {11}, {1, 10}, {6, 5}, {5, 3, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};

template <class P, class Net>
void check_family(const std::string& family, const Net& net,
                  const std::vector<FileTensor>& places) {
  CAPTURE(family);
  const witness::Values theirs("transformers_" + family);
  for (const int size : testing::rank_counts({1, 2, 3, 5, 8})) {
    CAPTURE(size);
    testing::run_on_ranks(size, [&](Ranks& ranks) {
      const Place place = place_of(ranks);
      Model<Net, Context<double, Reference, Ranks>, Ends<typename P::ids, typename P::logits>,
            ForwardOnly>
          model(net, ranks, Seed{3}, any_text);
      load_weights(directory(family) / "model.safetensors", model,
                   {.names = names_in_order(model, places), .convert = true});
      const std::size_t length = text[1].extent();
      for (const auto& cut : cuts) {
        KeyValueCache cache({.sequences = 2, .tokens = length});
        for (const std::size_t rows : cut) {
          const std::size_t begin = cache.tokens(0);
          const auto whole = [&](std::size_t row) {
            return row / rows * length + begin + row % rows;
          };
          const auto ids = filled<std::int32_t, typename P::ids>(
              {{Axis::batch, 2}, {Axis::sequence, rows}}, place,
              [&](std::size_t row) { return token(whole(row)); });
          const auto logits = model.evaluate(ids.view(), {.cache = &cache});
          const std::size_t classes = logits.global().back().extent();
          CHECK(largest_difference_of_part(logits, [&](std::size_t i) {
                  return theirs["logits"][whole(i / classes) * classes + i % classes];
                }) < 1e-11);
        }
        CHECK(cache.tokens(1) == length);
      }
    });
  }
}

void check_gpt2(const std::string& family) {
  const Gpt2Config config = read_gpt2_config(directory(family));
  check_family<TensorParallel>(family, gpt2<TensorParallel>(config), gpt2_tensors(config));
  check_family<SequenceParallel>(family, gpt2<SequenceParallel>(config), gpt2_tensors(config));
  check_family<ContextParallel>(family, gpt2<ContextParallel>(config), gpt2_tensors(config));
}

template <class P, LlamaForm Form>
void check_llama(const std::string& family) {
  const LlamaConfig config = read_llama_config(directory(family));
  check_family<P>(family, llama<P, Form>(config), llama_tensors(config));
}

}  // namespace

TEST_CASE("a text in pieces has the logits of transformers") {
  check_gpt2("gpt2");
  check_gpt2("gpt2_heads");  // of one feature
  check_llama<TensorParallel, LlamaForm{}>("llama");
  check_llama<TensorParallel, LlamaForm{.window = 4}>("mistral");
  check_llama<TensorParallel, LlamaForm{.head_norms = true}>("qwen3");
  constexpr LlamaForm turns{.head_norms = true, .window = dynamic, .two_windows = true};
  check_llama<TensorParallel, turns>("qwen3_turns");
  check_llama<ContextParallel, turns>("qwen3_turns");
}

namespace {

constexpr std::size_t vocabulary = 19;
constexpr LlamaConfig small{.vocabulary = vocabulary,
                            .features = 12,
                            .hidden = 20,
                            .heads = 6,
                            .groups = 2,
                            .head_size = 4,
                            .layers = 2};

template <class P>
auto small_llama() {
  return llama<P>(small);
}

/// On these ranks, with logits of a layout in which each has all of its tokens.
template <class T, class P, class C>
using Small = Model<decltype(small_llama<P>()), Context<T, Reference, C>,
                    Ends<typename P::ids, Invariant>, ForwardOnly>;

/// Token `position` of sequence `sequence`.
std::int32_t word(std::size_t sequence, std::size_t position) {
  return static_cast<std::int32_t>((5 * sequence + 3 * position + position * position) %
                                   vocabulary);
}

/// What one call evaluates.
struct Call {
  Shape shape;
  std::vector<Segment> segments;
};

/// Three sequences: side by side and padded, one behind the other in one sample, in another order,
/// and one in two pieces in one call.
const std::vector<Call> calls{
    {{{Axis::batch, 3}, {Axis::sequence, 5}}, {{0, 5, 0, 2}, {5, 2, 0, 0}, {11, 3, 0, 1}}},
    {{{Axis::batch, 1}, {Axis::sequence, 7}}, {{0, 1, 5, 2}, {1, 4, 3, 1}, {6, 1, 2, 0}}},
    {{{Axis::batch, 2}, {Axis::sequence, 1}}, {{0, 1, 7, 1}, {1, 1, 3, 0}}},
    {{{Axis::batch, 2}, {Axis::sequence, 3}}, {{0, 3, 4, 0}, {3, 1, 7, 0}, {4, 2, 6, 2}}}};

/// Logits of whole sequences, by one rank without a cache.
template <class T>
std::vector<std::vector<T>> logits_of_sequences() {
  SingleRank alone;
  Small<T, TensorParallel, SingleRank> model(small_llama<TensorParallel>(), alone, Seed{1},
                                             any_text);
  std::vector<std::vector<T>> all;
  for (std::size_t sequence = 0; sequence < 3; ++sequence) {
    const auto ids =
        filled<std::int32_t, Invariant>({{Axis::batch, 1}, {Axis::sequence, 9}}, {},
                                        [&](std::size_t row) { return word(sequence, row); });
    const auto logits = model.evaluate(ids.view()).span();
    all.emplace_back(logits.begin(), logits.end());
  }
  return all;
}

template <class T, class P>
void check_calls(double bound) {
  const auto expected = logits_of_sequences<T>();
  for (const int size : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(size);
    testing::run_on_ranks(size, [&](Ranks& ranks) {
      Small<T, P, Ranks> model(small_llama<P>(), ranks, Seed{1}, any_text);
      KeyValueCache cache({.sequences = 3, .tokens = 9});
      for (const Call& call : calls) {
        std::vector<std::int32_t> words(call.shape.elements());
        for (const Segment& one : call.segments)
          for (std::size_t i = 0; i < one.rows; ++i)
            words[one.row + i] = word(one.sequence, one.position + i);
        const auto ids = filled<std::int32_t, typename P::ids>(
            call.shape, place_of(ranks), [&](std::size_t row) { return words[row]; });
        const auto logits =
            model.evaluate(ids.view(), {.segments = call.segments, .cache = &cache});
        testing::Largest largest;
        for (const Segment& one : call.segments)
          for (std::size_t i = 0; i < one.rows * vocabulary; ++i)
            largest.see(std::abs(
                static_cast<double>(logits[one.row * vocabulary + i]) -
                static_cast<double>(expected[one.sequence][one.position * vocabulary + i])));
        CHECK(largest <= bound);
      }
    });
  }
}

}  // namespace

TEST_CASE("sequences that lie as they like are what they are alone") {
  check_calls<double, TensorParallel>(1e-14);
  check_calls<double, SequenceParallel>(1e-14);
  check_calls<double, ContextParallel>(1e-14);
}

TEST_CASE("in every dtype") {
  check_calls<float, TensorParallel>(2e-6);
  check_calls<bf16, TensorParallel>(0x1p-5);  // logits below 4, rounded in each layer
  check_calls<fp16, TensorParallel>(0x1p-8);
}

namespace {

/// The first of the calls, in a model `net`, with and without a cache.
template <class Net, class C>
std::vector<double> first_call(const Net& net, C& ranks, bool with_cache) {
  Model<Net, Context<double, Reference, C>, Ends<Invariant, Invariant>, ForwardOnly> model(
      net, ranks, Seed{1}, any_text);
  KeyValueCache cache({.sequences = 3, .tokens = 5});
  const Call& call = calls[0];
  const auto ids = filled<std::int32_t, Invariant>(
      call.shape, place_of(ranks), [](std::size_t i) { return static_cast<std::int32_t>(i); });
  const auto logits = with_cache
                          ? model.evaluate(ids.view(), {.segments = call.segments, .cache = &cache})
                          : model.evaluate(ids.view(), {.segments = call.segments});
  return {logits.span().begin(), logits.span().end()};
}

}  // namespace

TEST_CASE("sequences that begin are those of an evaluation without a cache, and so is padding") {
  SingleRank alone;
  const auto expected = first_call(small_llama<TensorParallel>(), alone, false);
  for (const int size : testing::rank_counts({1, 2, 3})) {
    testing::run_on_ranks(size, [&](Ranks& ranks) {
      CHECK(testing::largest_difference(first_call(small_llama<TensorParallel>(), ranks, true),
                                        expected) < 1e-14);
    });
  }
}

TEST_CASE("a model of the last logits has those of the last token of each sample") {
  SingleRank alone;
  const auto all = first_call(small_llama<TensorParallel>(), alone, false);
  std::vector<double> expected;
  for (const std::size_t row : {4U, 6U, 13U})
    for (std::size_t i = 0; i < vocabulary; ++i) expected.push_back(all[row * vocabulary + i]);
  for (const int size : testing::rank_counts({1, 2, 3, 8})) {
    CAPTURE(size);
    testing::run_on_ranks(size, [&](Ranks& ranks) {
      CHECK(testing::largest_difference(
                first_call(last_logits(small_llama<TensorParallel>()), ranks, true), expected) <
            1e-14);
      CHECK(testing::largest_difference(
                first_call(last_logits(small_llama<SequenceParallel>()), ranks, true), expected) <
            1e-14);
    });
  }
}

namespace {

/// Evaluates `rows` words of sequence 0 from `position` on.
template <class M>
auto say(M& model, KeyValueCache& cache, std::size_t position, std::size_t rows) {
  const auto ids = filled<std::int32_t, Invariant>(
      {{Axis::batch, 1}, {Axis::sequence, rows}}, model.run().place_at_ends(),
      [&](std::size_t row) { return word(0, position + row); });
  const auto logits = model.evaluate(ids.view(), {.cache = &cache}).span();
  return std::vector(logits.begin(), logits.end());
}

}  // namespace

TEST_CASE("a cache is shortened, and used again") {
  const auto expected = logits_of_sequences<double>();
  testing::run_on_ranks(testing::any_ranks(3), [&](Ranks& ranks) {
    Small<double, TensorParallel, Ranks> model(small_llama<TensorParallel>(), ranks, Seed{1},
                                               any_text);
    KeyValueCache cache({.sequences = 1, .tokens = 9});
    say(model, cache, 3, 9);
    cache.shorten(0);
    say(model, cache, 0, 4);
    say(model, cache, 1, 5);
    cache.shorten(0, 4);
    const auto logits = say(model, cache, 4, 5);
    CHECK(testing::largest_difference(logits, std::vector(expected[0].begin() + 4 * vocabulary,
                                                          expected[0].end())) < 1e-14);
    CHECK(cache.tokens(0) == 9);
  });
}

TEST_CASE("on a mesh whose ranks all share the layers") {
  const auto expected = logits_of_sequences<double>();
  run_mesh({.tensor = 3}, [&](MeshRanks<ThreadCommunicator>& ranks) {
    Small<double, TensorParallel, MeshRanks<ThreadCommunicator>> model(
        small_llama<TensorParallel>(), ranks, Seed{1}, any_text);
    KeyValueCache cache({.sequences = 1, .tokens = 9});
    std::vector<double> logits;
    for (const std::size_t rows : {5U, 1U, 3U}) {
      const auto ids = filled<std::int32_t, SamplesOverMesh<Invariant>>(
          {{Axis::batch, 1}, {Axis::sequence, rows}}, ranks.place(),
          [&](std::size_t row) { return word(0, cache.tokens(0) + row); });
      const auto some = model.evaluate(ids.view(), {.cache = &cache}).span();
      logits.insert(logits.end(), some.begin(), some.end());
    }
    CHECK(testing::largest_difference(logits, expected[0]) < 1e-14);
  });
}

TEST_CASE("without segments sample i continues sequence i, where it ends") {
  const auto expected = logits_of_sequences<double>();
  testing::run_on_ranks(testing::any_ranks(2), [&](Ranks& ranks) {
    Small<double, TensorParallel, Ranks> model(small_llama<TensorParallel>(), ranks, Seed{1},
                                               any_text);
    KeyValueCache cache({.sequences = 2, .tokens = 9});
    const Shape two{{Axis::batch, 2}, {Axis::sequence, 2}};
    std::size_t begin[] = {0, 0};
    const auto go_on = [&](const std::vector<Segment>& segments) {
      const auto ids = filled<std::int32_t, Invariant>(two, place_of(ranks), [&](std::size_t row) {
        return word(row / 2, begin[row / 2] + row % 2);
      });
      return model.evaluate(ids.view(), {.segments = segments, .cache = &cache});
    };
    go_on({{0, 2, 0, 0}, {2, 1, 0, 1}});
    begin[0] = 2, begin[1] = 1;
    const auto logits = go_on({});
    for (std::size_t i = 0; i < 4 * vocabulary; ++i) {
      const std::size_t sequence = i / (2 * vocabulary);
      CHECK(
          logits[i] ==
          doctest::Approx(expected[sequence][begin[sequence] * vocabulary + i % (2 * vocabulary)]));
    }
    CHECK(cache.tokens(0) == 4);
    CHECK(cache.tokens(1) == 3);
  });
}

TEST_CASE("an evaluation that fails leaves a cache as it was") {
  const auto expected = logits_of_sequences<double>();
  testing::run_on_ranks(testing::any_ranks(2), [&](Ranks& ranks) {
    Small<double, TensorParallel, Ranks> model(small_llama<TensorParallel>(), ranks, Seed{1},
                                               any_text);
    KeyValueCache cache({.sequences = 2, .tokens = 9});
    say(model, cache, 0, 3);
    const auto fails = [&](const Shape& shape, const std::vector<Segment>& segments,
                           std::int32_t id) {
      const auto ids =
          filled<std::int32_t, Invariant>(shape, place_of(ranks), [&](std::size_t) { return id; });
      const std::string message =
          message_of([&] { model.evaluate(ids.view(), {.segments = segments, .cache = &cache}); });
      CHECK(cache.tokens(0) == 3);
      CHECK(cache.tokens(1) == 0);
      return message;
    };
    const Shape two{{Axis::batch, 1}, {Axis::sequence, 2}};
    const Shape nine{{Axis::batch, 1}, {Axis::sequence, 9}};
    check_mentions(fails(two, {}, vocabulary), {"19"});
    check_mentions(fails(two, {{0, 1, 3, 0}, {1, 1, 3, 0}}, 1),
                   {"segment 1 begins at position 3 of sequence 0, of which there are 4"});
    check_mentions(fails(two, {{0, 2, 1, 0}}, 1), {"segment 0 begins at position 1", "shorten"});
    check_mentions(fails(two, {{0, 2, 0, 2}}, 1), {"no sequence 2", "room for 2"});
    check_mentions(fails(two, {{1, 2, 3, 0}}, 1), {"leaves the batch"});
    check_mentions(fails(nine, {}, 1), {"adds 9 tokens to sequence 0, which has 3 of at most 9"});
    check_mentions(fails({{Axis::batch, 3}, {Axis::sequence, 1}}, {}, 1),
                   {"has 3 sequences, and there is room for 2"});
    const auto logits = say(model, cache, 3, 6);
    CHECK(testing::largest_difference(logits, std::vector(expected[0].begin() + 3 * vocabulary,
                                                          expected[0].end())) < 1e-14);
  });
}

TEST_CASE("caches that cannot be are told") {
  check_mentions(message_of([] { KeyValueCache({.sequences = 2}); }), {"2 sequences of 0 tokens"});
  check_mentions(message_of([] { KeyValueCache({.sequences = 0, .tokens = 1}); }), {"at least 1"});
  check_mentions(message_of([] { KeyValueCache({.sequences = 8, .tokens = ~std::size_t{0}}); }),
                 {"64 bits"});
  SingleRank alone;
  Small<double, TensorParallel, SingleRank> model(small_llama<TensorParallel>(), alone, Seed{1},
                                                  any_text);
  Small<double, TensorParallel, SingleRank> other(small_llama<TensorParallel>(), alone, Seed{1},
                                                  any_text);
  KeyValueCache cache({.sequences = 1, .tokens = 9});
  say(model, cache, 0, 2);
  check_mentions(message_of([&] { say(other, cache, 2, 1); }), {"of another model"});
  check_mentions(message_of([&] { cache.shorten(0, 3); }), {"has 2 tokens", "shortened to 3"});
  check_mentions(message_of([&] { cache.tokens(1); }), {"no sequence 1"});
  KeyValueCache endless({.sequences = 2, .tokens = std::size_t{1} << 60});
  check_mentions(message_of<memory_error>([&] { say(model, endless, 0, 2); }),
                 {"KeyValueCache of 2 x 1152921504606846976 tokens", "no memory"});
  CHECK(endless.tokens(0) == 0);
}

namespace {

constexpr Shape one_token{{Axis::batch, 1}, {Axis::sequence, 1}, {Axis::feature, 4}};

template <AttentionForm Form>
auto attention() {
  const Linear<split::none, dynamic, dynamic> heads =
      Linear<split::none, dynamic, dynamic>(4, 4).in_units_of(2);
  return Sequential(Join(Attend<Form>{}, heads, heads, heads));
}

/// A model whose tokens see each other by `Form`, at the ends E.
template <AttentionForm Form, class E, class C>
struct Attention
    : Model<decltype(attention<Form>()), Context<double, Reference, C>, E, ForwardOnly> {
  explicit Attention(C& ranks) : Attention::Model(attention<Form>(), ranks, Seed{1}, one_token) {}
};

/// What evaluating a token says in such a model.
template <AttentionForm Form, class E, class C>
std::string refused(C& ranks) {
  Attention<Form, E, C> model(ranks);
  const Tensor<double, typename Attention<Form, E, C>::input_layout> x(one_token,
                                                                       model.run().place_at_ends());
  KeyValueCache cache({.sequences = 2, .tokens = 9});
  return message_of([&] { model.evaluate(x.view(), {.cache = &cache}); });
}

template <Layout L>
using Both = Ends<L, L>;

}  // namespace

TEST_CASE("attentions that a cache does not serve are told") {
  SingleRank alone;
  const std::string later = refused<AttentionForm{.causal = false}, Both<Invariant>>(alone);
  check_mentions(later, {"Attend<all>: its tokens see later ones"});
  CHECK(!testing::contains(later, "Attend<all>: Attend<all>"));
  check_mentions(refused<AttentionForm{}, Both<Sharded<Axis::batch>>>(alone),
                 {"each rank must have all tokens"});
  check_mentions(refused<AttentionForm{.window = 2}, Both<Sharded<Axis::sequence>>>(alone),
                 {"each rank must have all tokens"});
  for (const mesh& sizes : {mesh{.data = 2}, mesh{.replica = 2}, mesh{.context = 2}})
    run_mesh(sizes, [&](MeshRanks<ThreadCommunicator>& ranks) {
      check_mentions(refused<AttentionForm{}, Both<Invariant>>(ranks),
                     {"on the mesh " + to_string(sizes) + " a rank has some of the tokens"});
    });
}

TEST_CASE("a cache that one model does not use serves another one") {
  SingleRank alone;
  Attention<AttentionForm{.causal = false}, Both<Invariant>, SingleRank> sees_all(alone);
  Attention<AttentionForm{}, Both<Invariant>, SingleRank> model(alone);
  const Tensor<double, Invariant> x(one_token, Place{});
  KeyValueCache cache({.sequences = 1, .tokens = 9});
  CHECK(message_of([&] { sees_all.evaluate(x.view(), {.cache = &cache}); }) != "");
  model.evaluate(x.view(), {.cache = &cache});
  CHECK(cache.tokens(0) == 1);
  check_mentions(message_of([&] { sees_all.evaluate(x.view(), {.cache = &cache}); }),
                 {"of another model"});
}
