// A BERT of transformers, see transformers.hpp: samples with padding, of two sentences.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ranks/transformers.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/bert.hpp"
#include "shardwise/models/bert_files.hpp"
#include "shardwise/models/parallelism.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using testing::filled;
using testing::transformers::directory;
using testing::transformers::text;
using testing::transformers::token;

namespace {

// begin: padding
// The first sample lacks its last two of 11 tokens, the second one its first three.
const std::vector<Segment> samples{{.row = 0, .rows = 9},
                                   {.row = 11 + 3, .rows = 8, .position = 3}};
// end: padding

/// The second sentence begins in column 5 of the first sample, and in column 7 of the second.
std::int32_t type_of(std::size_t row) { return row % 11 >= (row < 11 ? 5 : 7) ? 1 : 0; }

/// What a BERT reads and learns.
template <class P>
class Pairs {
 public:
  using ends = BertEnds<P>;
  using loss = MaskedCrossEntropy;
  static std::array<Shape, 2> shapes() { return {text, text}; }
  static const std::vector<Segment>& segments() { return samples; }
  static bool is_token(std::size_t row) {
    return std::any_of(samples.begin(), samples.end(), [&](const Segment& one) {
      return row >= one.row && row < one.row + one.rows;
    });
  }

  static auto labels(Place place) { return testing::transformers::next_tokens(place, is_token); }

  explicit Pairs(Place place)
      : ids_(filled<std::int32_t, typename P::ids>(text, place, token)),
        types_(filled<std::int32_t, typename P::stream>(text, place, type_of)) {}
  auto view() const { return std::tuple(ids_.view(), types_.view()); }

 private:
  Tensor<std::int32_t, typename P::ids> ids_;
  Tensor<std::int32_t, typename P::stream> types_;
};

template <class P>
void check_bert(int size, const std::string& family = "bert") {
  const BertConfig config = read_bert_config(directory(family));
  testing::transformers::check<P, Pairs<P>>(family, bert<P>(config), bert_tensors(config), size);
}

}  // namespace

TEST_CASE("a BERT of transformers") {
  for (const int size : {1, 2, 3, 4, 7, 8}) check_bert<TensorParallel>(size);
  for (const int size : {1, 2, 5}) check_bert<SequenceParallel>(size);
  for (const int size : {1, 3, 8}) check_bert<ContextParallel>(size);
}

TEST_CASE("a BERT of transformers with heads of one feature") {
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8}) {
    check_bert<TensorParallel>(size, "bert_heads");
    check_bert<SequenceParallel>(size, "bert_heads");
    check_bert<ContextParallel>(size, "bert_heads");
  }
}

namespace {

/// The losses of two steps of the BERT, whose training drops as Form says.
template <BertForm Form>
std::array<double, 2> losses_of(int size) {
  const BertConfig config = read_bert_config(directory("bert"));
  const auto net = bert<TensorParallel, Form>(config);
  std::array<double, 2> losses{};
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    using Task = Pairs<TensorParallel>;
    const Place place = place_of(ranks);
    Model<std::remove_const_t<decltype(net)>, Context<double, Reference, ThreadCommunicator>,
          Task::ends>
        model(net, ranks, Seed{3}, Task::shapes());
    load_weights(directory("bert") / "model.safetensors", model,
                 {.names = names_in_order(model, bert_tensors(config)), .convert = true});
    const Task task(place);
    const auto labels = Task::labels(place);
    Optimizer optimizer(model, Sgd{.learning_rate = 0.1});
    for (double& loss : losses) {
      const double found = train_step(model, task.view(), labels.view(), Task::loss{}, optimizer,
                                      {}, Task::segments());
      if (place.rank == 0) loss = found;
    }
  });
  return losses;
}

}  // namespace

TEST_CASE("dropout in the training of a BERT is the same at any number of ranks") {
  const auto without = losses_of<BertForm{}>(1);
  const auto one = losses_of<BertForm{.dropped = 1, .of = 10}>(1);
  const auto three = losses_of<BertForm{.dropped = 1, .of = 10}>(3);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(three[i] == doctest::Approx(one[i]).epsilon(1e-12));
    CHECK(std::abs(one[i] - without[i]) > 1e-3);
  }
}

namespace {

/// Loads the BERT in float, in a communicator that counts, and calls f(model, ranks).
template <class F>
void with_float_bert(F&& f) {
  run_ranks(2, [&](ThreadCommunicator& threads) {
    CountingCommunicator ranks(threads);
    const std::filesystem::path folder = directory("bert");
    // begin: bert
    const BertConfig config = read_bert_config(folder);
    auto net = bert<TensorParallel>(config);
    Model<decltype(net), Context<float, Reference, decltype(ranks)>, BertEnds<TensorParallel>,
          ForwardOnly>
        model(net, ranks, Seed{3}, {text, text});
    load_weights(folder / "model.safetensors", model,
                 {.names = names_in_order(model, bert_tensors(config))});
    // end: bert
    f(model, ranks);
  });
}

bool is_token(std::size_t row) { return Pairs<TensorParallel>::is_token(row); }

}  // namespace

TEST_CASE("a directory in float; what is in padding changes no token") {
  const witness::Values theirs("transformers_bert");
  with_float_bert([&](auto& model, auto& ranks) {
    const Place place = place_of(ranks);
    const auto ids = filled<std::int32_t, Invariant>(
        text, place, [](std::size_t i) { return is_token(i) ? token(i) : 12; });
    const auto types = filled<std::int32_t, Invariant>(text, place, type_of);
    // begin: pairs
    const auto logits = model.evaluate(std::tuple(ids.view(), types.view()), {.segments = samples});
    // end: pairs
    CHECK(testing::largest_difference_of_part(
              logits, [&](std::size_t i) { return theirs["logits"][i]; },
              [](std::size_t i) { return is_token(i / 13); }) < 1e-5);
  });
}

TEST_CASE("what cannot be read is refused before anything is sent") {
  with_float_bert([](auto& model, auto& ranks) {
    const Place place = place_of(ranks);
    const auto refused = [&](std::size_t wrong_id, std::size_t wrong_type,
                             const std::vector<Segment>& segments, const std::string& said) {
      const auto ids = filled<std::int32_t, Invariant>(
          text, place, [&](std::size_t i) { return i == wrong_id ? 13 : token(i); });
      const auto types = filled<std::int32_t, Invariant>(
          text, place, [&](std::size_t i) { return i == wrong_type ? -1 : type_of(i); });
      ranks.clear();
      testing::check_mentions(testing::message_of<argument_error>([&] {
                                model.evaluate(std::tuple(ids.view(), types.view()),
                                               {.segments = segments});
                              }),
                              {said});
      CHECK(ranks.log().empty());
    };
    constexpr std::size_t none = 22;
    refused(5, none, samples, "token id 13 at element 5 of the input is not in the table");
    refused(none, 7, samples, "token id -1 at element 7 of the input is not in the table");
    refused(none, none, {{.row = 0, .rows = 9, .position = 5}},
            "row 6 of the input is at position 11, but the table has 11 positions");
    refused(none, none, {{.row = 0, .rows = 9}, {.row = 8, .rows = 2}},
            "segment 1 is rows 8 to 10 (without the last)");
    refused(none, none, {{.row = 20, .rows = 3}}, "it leaves the batch");
  });
}
