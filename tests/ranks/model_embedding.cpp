// Embeddings at 1 to 8 ranks against their formula: every dtype and split, tables with fewer rows
// than ranks, a table that the last layer shares, and ids that no row has.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/tied.hpp"
#include "support/far.hpp"
#include "support/filled.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"

using namespace shardwise;
using testing::filled;
using testing::Ranks;

namespace {

constexpr std::size_t rows = 5, wide = 7;
constexpr Shape text{{Axis::batch, 3}, {Axis::sequence, 100}};
constexpr std::size_t words = 300;

/// Nearly all words are the same one: a sum of that many ones in bf16 would stop at 256.
std::int32_t id_of(std::size_t word) {
  return word < 4 ? static_cast<std::int32_t>(word) : std::int32_t{4};
}
float number_of(std::size_t i) { return static_cast<float>(i % 9) - 4; }

template <Layout L>
auto ids(Place place) {
  return filled<std::int32_t, L>(text, place, id_of);
}

template <class Whole>
std::vector<double> doubles(const Whole& whole) {
  std::vector<double> values;
  for (std::size_t i = 0; i < whole.size(); ++i)
    values.push_back(static_cast<double>(static_cast<float>(whole[i])));
  return values;
}

/// A model on ids whose first parameter is the table.
template <class L, class T, class In, class Out = Invariant>
using ModelOf = Model<L, Context<T, Reference, Ranks>, Ends<In, Out>, Train>;

template <class M>
void set_table(M& model, const std::string& name, std::size_t columns) {
  const auto table = filled<typename M::dtype, Invariant>(
      {{Axis::output, rows}, {Axis::input, columns}}, place_of(model.ranks()), number_of);
  model.set(name, table.view());
}

template <class T, class L, class In = Invariant>
void check_table() {
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    testing::run_on_ranks(ranks, [](Ranks& group) {
      ModelOf<L, T, In> model(L{}, group, Seed{1}, text);
      set_table(model, "weight", wide);
      const auto x = ids<In>(place_of(group));
      const auto y = model.forward(x.view());
      bool is_right = y.global() == Shape{text[0], text[1], {Axis::feature, wide}};
      for (std::size_t i = 0; i < y.size(); ++i)
        is_right &= static_cast<float>(y[i]) ==
                    number_of(static_cast<std::size_t>(id_of(i / wide)) * wide + i % wide);
      CHECK(is_right);
      const auto dy =
          filled<T, Invariant>(y.global(), place_of(group), [](std::size_t) { return 1.0F; });
      model.backward(dy.view());
      model.forward(x.view());
      model.backward(dy.view());
      model.settle_gradients();
      std::vector<double> expected(rows * wide, 2.0);
      for (std::size_t i = 4 * wide; i < expected.size(); ++i) expected[i] = 2.0 * (words - 4);
      CHECK(doubles(model.gather_gradient("weight")) == expected);
    });
  }
}

struct Words;
template <class S>
struct Tied : Sequential<Owns<Words, Embedding<rows, wide, S>>,
                         Borrows<Words, Linear<S, wide, rows, false>>> {};

/// y = W[x] Wᵀ, and so dW = dyᵀ W[x] + the rows of dy W, each added to that of its id.
template <class S, class In>
void check_tied() {
  std::vector<double> expected(rows * wide), outputs(words * rows);
  const auto row_of = [](std::size_t word) { return static_cast<std::size_t>(id_of(word)); };
  for (std::size_t word = 0; word < words; ++word)
    for (std::size_t v = 0; v < rows; ++v) {
      const float dy = number_of(word * rows + v);
      for (std::size_t c = 0; c < wide; ++c) {
        const float of_id = number_of(row_of(word) * wide + c), of_v = number_of(v * wide + c);
        outputs[word * rows + v] += of_id * of_v;
        expected[v * wide + c] += dy * of_id;
        expected[row_of(word) * wide + c] += dy * of_v;
      }
    }
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      ModelOf<Tied<S>, double, In> model(Tied<S>{}, group, Seed{1}, text);
      set_table(model, "0.weight", wide);
      const auto x = ids<In>(place_of(group));
      const auto y = model.forward(x.view());
      CHECK(std::vector(y.data(), y.data() + y.size()) == outputs);
      const auto dy = filled<double, Invariant>(y.global(), place_of(group), number_of);
      model.backward(dy.view());
      model.settle_gradients();
      const auto gradient = model.gather_gradient("0.weight");
      CHECK(std::vector(gradient.data(), gradient.data() + gradient.size()) == expected);
    });
  }
}

template <class In>
std::string error_of_id(std::int32_t wrong) {
  return testing::message_of([&] {
    run_ranks(2, [&](ThreadCommunicator& group) {
      Model<Embedding<rows, wide, split::none>, Context<float, Reference, ThreadCommunicator>,
            Ends<In, In>, Train>
          model({}, group, Seed{1}, text);
      const auto x = filled<std::int32_t, In>(
          text, place_of(group), [&](std::size_t i) { return i == 299 ? wrong : id_of(i); });
      model.evaluate(x.view());
    });
  });
}

}  // namespace

TEST_CASE("rows and their gradients over two batches, in each layout") {
  check_table<double, Embedding<rows, wide>>();
  check_table<double, Embedding<rows, wide, split::input>>();
  check_table<double, Embedding<rows, wide, split::none>>();
  check_table<double, Embedding<rows, wide, split::none>, Sharded<Axis::batch>>();
  check_table<double, Embedding<rows, wide>, Sharded<Axis::sequence>>();
}

TEST_CASE_TEMPLATE("and of each element type", T, float, bf16, fp16) {
  check_table<T, Embedding<rows, wide>>();  // its output is a sum over ranks
  check_table<T, Embedding<rows, wide, split::none>>();
}

TEST_CASE("a table that the last layer shares") {
  check_tied<split::output, Invariant>();
  check_tied<split::input, Invariant>();
  check_tied<split::none, Invariant>();
  check_tied<split::none, Sharded<Axis::sequence>>();
}

TEST_CASE("the words of GPT-2 on eight ranks: those at the ends of each block") {
  constexpr std::size_t vocabulary = 50257, least = vocabulary / 8, near = 17;
  constexpr Shape ends{{Axis::batch, 9 * near}};
  const auto id_near_end = [](std::size_t i) {  // eight before and behind every end, and both edges
    const std::size_t id = i / near * least + i % near;
    return static_cast<std::int32_t>(id < 8 ? 0 : std::min(id - 8, vocabulary - 1));
  };
  testing::run_on_ranks(testing::any_ranks(8), [&](Ranks& group) {
    ModelOf<Embedding<vocabulary, 1>, double, Invariant> model({}, group, Seed{1}, ends);
    const auto table = filled<double, Invariant>({{Axis::output, vocabulary}, {Axis::input, 1}},
                                                 place_of(group), number_of);
    model.set("weight", table.view());
    const auto x = filled<std::int32_t, Invariant>(ends, place_of(group), id_near_end);
    const auto y = model.forward(x.view());
    const auto dy = filled<double, Invariant>(y.global(), place_of(group), number_of);
    model.backward(dy.view());
    model.settle_gradients();
    const auto gradient = model.gather_gradient("weight");
    std::vector<double> outputs, expected(vocabulary);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto id = static_cast<std::size_t>(id_near_end(i));
      outputs.push_back(number_of(id));
      expected[id] += number_of(i);
    }
    CHECK(std::vector(y.data(), y.data() + y.size()) == outputs);
    CHECK(std::vector(gradient.data(), gradient.data() + gradient.size()) == expected);
  });
}

TEST_CASE("an id that no row has is named, by the rank that has it") {
  const std::string end =
      " at element 299 of the input is not in the table: it has 5 rows, numbered from 0. Look at "
      "the ids, or at the size of the table";
  for (const std::int32_t wrong : {5, -1}) {
    const std::string sentence = "token id " + std::to_string(wrong) + end;
    testing::check_mentions(error_of_id<Invariant>(wrong), {sentence});
    testing::check_mentions(error_of_id<Sharded<Axis::batch>>(wrong), {sentence, "rank 1"});
  }
  CHECK_THROWS_AS((Embedding<rows, wide>{}.output_shape({{Axis::batch, 2}, {Axis::feature, 3}})),
                  shape_error);
}

TEST_CASE("on a device the row of such an id is NaN, and it has no gradient") {
  testing::Far backend(std::make_shared<testing::FarMemory>());
  SingleRank alone;
  const Shape three{{Axis::batch, 3}};
  Model<Embedding<rows, 2>, Context<bf16, testing::Far, SingleRank>> model({}, alone, Seed{1},
                                                                           three, backend);
  set_table(model, "weight", 2);
  const std::array<std::int32_t, 3> given{4, 5, -1};
  const auto x = model.to_device(View<const std::int32_t, Invariant>(given.data(), three, {}));
  const auto y = model.to_host(model.forward(x.view()));
  CHECK(static_cast<float>(y[1]) == number_of(9));
  for (std::size_t i = 2; i < 6; ++i) CHECK(std::isnan(static_cast<float>(y[i])));
  const auto dy = filled<bf16, Invariant>(y.global(), {}, [](std::size_t) { return 1.0F; });
  model.backward(model.to_device(dy.view()).view());
  model.settle_gradients();
  CHECK(doubles(model.gather_gradient("weight")) ==
        std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1});
}
