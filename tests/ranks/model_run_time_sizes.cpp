// Transformers whose sizes are known at run time only have the numbers of those whose sizes are in
// their types, bit for bit.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/head_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/model/describe.hpp"
#include "shardwise/model/describe_graph.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/step.hpp"
#include "support/filled.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"
#include "support/trained.hpp"

using namespace shardwise;
using testing::filled;
using testing::Ranks;

namespace {

constexpr std::size_t wide = 6, size = 2;
constexpr Shape rows{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, wide}};

template <class S, std::size_t Count>
using Turned = Sequential<HeadLinear<wide, Count, size, true, S>, HeadNorm<size>, Rope>;

template <class First, class Second, std::size_t Heads, std::size_t Groups>
struct Typed
    : Sequential<
          Join<Attend<AttentionForm{.readers = Heads / Groups, .window = 3}>, Turned<First, Heads>,
               Turned<First, Groups>, HeadLinear<wide, Groups, size, true, First>>,
          Linear<Second, Heads * size, wide>> {};

// begin: sizes
/// What a program reads from a file or from its arguments.
struct Sizes {
  std::size_t features, heads, groups, size, layers;
};

constexpr AttentionForm grouped{.readers = dynamic, .window = 3};

template <class First, class Second>
auto attention_of(const Sizes& of) {
  using Projection = Linear<First, dynamic, dynamic>;
  const HeadNorm<dynamic> norm(of.size);
  const auto q = Projection(of.features, of.heads * of.size).in_units_of(of.size);
  const auto kv =
      Projection(of.features, of.groups * of.size).in_units_of(of.size, of.heads / of.groups);
  return Sequential(
      Join(Attend<grouped>{}, Sequential(q, norm, Rope{}), Sequential(kv, norm, Rope{}), kv),
      Linear<Second, dynamic, dynamic>(of.heads * of.size, of.features));
}

template <class First, class Second>
auto stack_of(const Sizes& of) {
  return Repeat(of.layers, Residual(attention_of<First, Second>(of)));
}
// end: sizes

/// Output, gradient of the input, and gradients of all parameters, on rank 0.
template <Layout Stream, class L>
std::vector<float> numbers_of(const L& net, int ranks) {
  std::vector<float> numbers;
  testing::run_on_ranks(ranks, [&](Ranks& group) {
    Model<L, Context<float, Reference, Ranks>, Ends<Stream, Stream>, TrainWithInputGradient> model(
        net, group, Seed{3}, rows);
    const auto x = filled<float, Stream>(rows, place_of(group), [](std::size_t i) {
      return static_cast<float>(i * i % 11) / 11 - 0.5F;
    });
    const bool first = group.rank() == 0;
    const auto note = [&](const auto& some) {
      if (first) numbers.insert(numbers.end(), some.data(), some.data() + some.size());
    };
    const auto y = model.forward(x.view());
    note(y);
    note(model.backward(x.view()));
    model.settle_gradients();
    for (const std::string& name : testing::names_of(model)) note(model.gather_gradient(name));
  });
  return numbers;
}

template <class First, class Second, Layout Stream, std::size_t Heads, std::size_t Groups>
void check_readers() {
  const Typed<First, Second, Heads, Groups> typed;
  const auto open = attention_of<First, Second>({wide, Heads, Groups, size, 1});
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 8})) {
    CAPTURE(ranks);
    CAPTURE(Groups);
    const auto numbers = numbers_of<Stream>(typed, ranks);
    CHECK(numbers.size() > rows.elements() / 8);
    CHECK(numbers_of<Stream>(open, ranks) == numbers);
  }
}

template <std::size_t Heads, std::size_t Groups>
void check_readers_by_head() {
  check_readers<split::output, split::input, Invariant, Heads, Groups>();
}

}  // namespace

TEST_CASE("readers that are known at run time give the numbers of those in the type") {
  check_readers_by_head<6, 2>();
  check_readers_by_head<6, 1>();
  check_readers_by_head<6, 6>();
  check_readers_by_head<4, 2>();
  check_readers<split::none, split::none, Sharded<Axis::sequence>, 6, 2>();
}

TEST_CASE("readers that do not fit are an error") {
  using Open = Linear<split::output, dynamic, dynamic>;
  CHECK_THROWS_WITH_AS(Open(6, 4).in_units_of(2, 0),
                       "in_units_of: each unit needs at least one reader, but 0 are given",
                       argument_error);
  const auto q = Open(6, 12).in_units_of(2);
  const auto message = [&](const auto& attend, const auto& keys) {
    return testing::message_of([&] { Join(attend, q, keys, keys).output_shape(rows); });
  };
  CHECK(message(Attend<AttentionForm{.readers = dynamic}>{}, Open(6, 4).in_units_of(2)) ==
        "an attention is given queries [batch 2, sequence 5, feature 6*2], keys [batch 2, sequence "
        "5, feature 2*2] and values [batch 2, sequence 5, feature 2*2]: they must have the same "
        "rows [batch, sequence] and heads of the same size, which HeadLinear gives, and 1 times as "
        "many query heads as key heads, the readers that in_units_of(size, readers) of the layers "
        "of keys and values says");
  CHECK(message(Attend<AttentionForm{.readers = 3}>{}, Open(6, 4).in_units_of(2, 2)) ==
        "an attention is given queries [batch 2, sequence 5, feature 6*2], keys [batch 2, sequence "
        "5, feature 2*2 read by 2] and values [batch 2, sequence 5, feature 2*2 read by 2]: they "
        "must have the same rows [batch, sequence] and heads of the same size, which HeadLinear "
        "gives, and 3 times as many query heads as key heads");
  CHECK(message(Attend<AttentionForm{.readers = 3}>{}, Open(6, 4).in_units_of(2, 3)).empty());
  CHECK(detail::name_of<Attend<AttentionForm{.readers = dynamic}>>() ==
        "Attend<causal, dynamic readers>");
}

namespace {

constexpr Sizes sizes{wide, 6, 2, size, 3};
const auto open_stack = stack_of<split::output, split::input>(sizes);
using Block = std::remove_cvref_t<decltype(open_stack.block())>;
const Repeat<3, Block> typed_stack(open_stack.block());

using Between = Ends<Invariant, Invariant>;

/// The description without the name of the type, and the graph.
template <class L>
std::string pictures_of(const L& net, int ranks) {
  const Place first{0, ranks};
  const std::string table = describe<Between, Train>(net, first, rows);
  const std::string graph = describe_graph<Between, Train>(net, first, rows);
  return table.substr(table.find(" on [")) + graph.substr(graph.find("labelloc"));
}

/// What some steps come to, on rank 0.
template <class L>
testing::TrainingResult learned(const L& net, int ranks) {
  testing::TrainingResult result;
  testing::run_on_ranks(ranks, [&](Ranks& group) {
    Model<L, Context<float, Reference, Ranks>, Between> model(net, group, Seed{3}, rows);
    const auto x = filled<float, Invariant>(rows, place_of(group), [](std::size_t i) {
      return static_cast<float>(i * i % 11) / 11 - 0.5F;
    });
    Optimizer optimizer(model, AdamW{.learning_rate = 1e-2});
    const Tensor<float, Invariant> zeros(rows, place_of(group));
    const auto mine = testing::trained(model, 4, [&] {
      return train_step(model, x.view(), zeros.view(), MeanSquaredError{}, optimizer);
    });
    if (group.rank() == 0) result = mine;
  });
  return result;
}

}  // namespace

TEST_CASE("a number of blocks that is known at run time is that in the type") {
  CHECK(open_stack.times() == 3);
  CHECK(typed_stack.times() == 3);
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    const Plan open = plan_of<Between, Train>(open_stack, ranks, rows);
    const Plan typed = plan_of<Between, Train>(typed_stack, ranks, rows);
    CHECK(open.forward.size() >= 3);
    CHECK(open.forward == typed.forward);
    CHECK(open.backward == typed.backward);
    CHECK(open.settle == typed.settle);
    const Place last{ranks - 1, ranks};
    CHECK(parameters_of_rank<Between>(open_stack, last, rows) ==
          parameters_of_rank<Between>(typed_stack, last, rows));
    CHECK(pictures_of(open_stack, ranks) == pictures_of(typed_stack, ranks));
    CHECK(numbers_of<Invariant>(open_stack, ranks) == numbers_of<Invariant>(typed_stack, ranks));
    const auto one = learned(open_stack, ranks), other = learned(typed_stack, ranks);
    CHECK(one.parameters.size() == 3 * 10);
    CHECK(one.parameters == other.parameters);
    CHECK(one.losses == other.losses);
    CHECK(one.losses.back() < one.losses.front());
  }
}

TEST_CASE("no blocks are an error") {
  CHECK_THROWS_WITH_AS(Repeat(0, open_stack.block()),
                       "Repeat: a block is repeated at least once, not 0 times", argument_error);
  CHECK(detail::name_of<Repeat<dynamic, Rope>>() == "Repeat<dynamic, Rope>");
}
