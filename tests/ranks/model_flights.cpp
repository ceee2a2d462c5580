// Several batches under way in one model, and blocks that run forward again in backward.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "ranks/layer_on_ranks.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/experts.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/global_max_pool.hpp"
#include "shardwise/layers/group_norm.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/queries.hpp"
#include "shardwise/testing/calls.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"

using namespace shardwise;
using testing::message_of;
using testing::rank_counts;
using testing::Ranks;
using testing::run_on_ranks;

namespace {

template <class Block>
using Once = Block;

const Shape text{{Axis::batch, 3}, {Axis::sequence, 4}, {Axis::feature, 8}};
const Shape images{{Axis::batch, 3}, {Axis::channel, 2}, {Axis::height, 7}, {Axis::width, 6}};

constexpr ExpertSizes experts{.experts = 3, .chosen = 2, .features = 8, .hidden = 4};

/// Attention, experts, norms and masks of text.
template <template <class> class R>
struct Text
    : Sequential<
          R<Residual<Sequential<LayerNorm<8>,
                                Join<Attend<AttentionForm{.causal = true, .dropped = 1, .of = 8}>,
                                     HeadLinear<8, 4, 2>, HeadLinear<8, 4, 2>, HeadLinear<8, 4, 2>>,
                                RowParallelLinear<8, 8>, Dropout<1, 4>>>>,
          R<Residual<Sequential<LayerNorm<8>, ColumnParallelLinear<8, 12>, Gelu,
                                R<Sequential<RowParallelLinear<12, 8>, Dropout<1, 4>>>>>>,
          R<Residual<Experts<split::expert, experts>>>, Linear<split::none, 8, 5>> {};

/// Convolutions, norms, pools and masks of images.
template <template <class> class R>
struct Images
    : Sequential<R<Sequential<Conv2d<split::height, 2, 4, kernel(3, {.padding = 1})>, BatchNorm<4>,
                              Relu, ChannelDropout<1, 4>, MaxPool2d<2>>>,
                 R<Sequential<Conv2d<split::none, 4, 4, 1>, GroupNorm<2, 4>, GlobalMaxPool>>,
                 Flatten, Linear<split::none, 4, 3>> {};

/// What a program sees of four batches of one step: their outputs, the gradients of their inputs,
/// the gradients of all parameters and the running statistics; those of this rank.
using Seen = std::vector<float>;

constexpr std::size_t batches = 4;
using Order = std::array<std::size_t, batches>;

template <class V>
void note(Seen& seen, const V& view) {
  seen.insert(seen.end(), view.data(), view.data() + view.size());
}

template <class Net>
struct Program {
  using M = Model<Net, Context<float, Reference, CountingCommunicator<Ranks>>,
                  Ends<Invariant, Invariant>, TrainWithInputGradient>;

  CountingCommunicator<Ranks> counted;
  Shape in;
  M model;
  std::vector<Tensor<float, Invariant>> x, outputs, slopes;
  std::vector<Seen> dx = std::vector<Seen>(batches);

  Program(Ranks& ranks, const Shape& shape)
      : counted(ranks), in(shape), model(Net{}, counted, Seed{5}, shape) {
    for (std::size_t k = 0; k < batches; ++k) {
      Tensor<float, Invariant> one(in, place_of(ranks));
      for (std::size_t i = 0; i < one.size(); ++i)
        one[i] = static_cast<float>(std::sin(static_cast<double>(3 * i + 7 * k)));
      x.push_back(one);
    }
  }

  void forward(Flight flight, std::size_t k) {
    outputs.push_back(model.to_host(model.forward(x[k].view(), {.flight = flight})));
    Tensor<float, Invariant> slope(outputs.back().global(), model.run().place());
    for (std::size_t i = 0; i < slope.size(); ++i)
      slope[i] = static_cast<float>(std::cos(static_cast<double>(5 * i + k)));
    slopes.push_back(slope);
  }

  /// The gradient of an output is zero unless `counts`.
  void backward(Flight flight, std::size_t k, bool counts) {
    if (!counts) std::fill_n(slopes[k].data(), slopes[k].size(), 0.0F);
    note(dx[k], model.backward(slopes[k].view(), flight));
  }

  Seen seen() {
    Seen all;
    for (const auto& one : outputs) note(all, one);
    for (const Seen& one : dx) all.insert(all.end(), one.begin(), one.end());
    model.settle_gradients();
    for (const float g : model.gradients()) all.push_back(g);
    model.visit_buffers([&](auto buffer) { note(all, buffer.value); });
    return all;
  }
};

/// One batch after the other. `chosen` is the only batch whose output has a gradient that is not
/// zero, or `batches` if all have one.
template <class Net>
Seen one_at_a_time(Ranks& ranks, const Shape& in, std::size_t chosen) {
  Program<Net> program(ranks, in);
  for (std::size_t k = 0; k < batches; ++k) {
    program.forward(Flight{}, k);
    program.backward(Flight{}, k, chosen == batches || chosen == k);
  }
  return program.seen();
}

/// All forwards, an evaluation, and then all backwards in this order.
template <class Net>
Seen all_under_way(Ranks& ranks, const Shape& in, std::size_t chosen, const Order& order) {
  Program<Net> program(ranks, in);
  program.model.reserve_flights(batches + 1);
  for (std::size_t k = 0; k < batches; ++k) program.forward(Flight{k + 1}, k);
  program.model.evaluate(program.x[0].view());
  for (const std::size_t k : order)
    program.backward(Flight{k + 1}, k, chosen == batches || chosen == k);
  return program.seen();
}

/// Gradients of parameters are sums over batches in the order of their backwards. So in another
/// order the sums of one batch and of zeros are compared.
template <class Net>
void check_flights(const Shape& in) {
  for (const int count : rank_counts({1, 2, 3}))
    run_on_ranks(count, [&](Ranks& ranks) {
      const Seen all = one_at_a_time<Net>(ranks, in, batches);
      CHECK(all_under_way<Net>(ranks, in, batches, {0, 1, 2, 3}) == all);
      for (const std::size_t chosen : {std::size_t{0}, std::size_t{2}}) {
        const Seen expected = one_at_a_time<Net>(ranks, in, chosen);
        CHECK(expected != all);
        CHECK(all_under_way<Net>(ranks, in, chosen, {3, 2, 1, 0}) == expected);
        CHECK(all_under_way<Net>(ranks, in, chosen, {2, 0, 3, 1}) == expected);
      }
    });
}

/// Values and calls with and without Recompute.
template <class Plain, class Again>
void check_again(const Shape& in) {
  for (const int count : rank_counts({1, 2, 3, 4, 5, 6, 7, 8}))
    run_on_ranks(count, [&](Ranks& ranks) {
      const Seen plain = one_at_a_time<Plain>(ranks, in, batches);
      CHECK(one_at_a_time<Again>(ranks, in, batches) == plain);
      CHECK(all_under_way<Again>(ranks, in, batches, {0, 1, 2, 3}) == plain);

      Program<Again> program(ranks, in);
      program.forward(Flight{}, 0);
      program.backward(Flight{}, 0, true);
      program.model.settle_gradients();
      const std::vector<CountedCall> log(program.counted.log().begin(),
                                         program.counted.log().end());
      const Plan plan = program.model.plan(in);
      std::vector<CountedCall> planned;
      for (const CollectiveList& part : {plan.forward, plan.backward, plan.settle})
        for (const CountedCall& call : planned_calls<Ranks>(part, count)) planned.push_back(call);
      CHECK(difference_from_plan("a step", planned, counted_calls(ranks, log)) == "");
      CHECK(plan.forward == Program<Plain>(ranks, in).model.plan(in).forward);
    });
}

}  // namespace

TEST_CASE("four batches under way have the bits of one after the other") {
  SUBCASE("text") { check_flights<Text<Once>>(text); }
  SUBCASE("images") { check_flights<Images<Once>>(images); }
}

TEST_CASE("a batch that is discarded keeps its numbers, and those of batches behind it") {
  run_on_ranks(2, [](Ranks& c) {
    using Masked = Sequential<Linear<split::none, 8, 8>, Dropout<1, 2>>;
    using M = Model<Masked, Context<double, Reference, Ranks>>;
    const Shape rows{{Axis::batch, 3}, {Axis::feature, 8}};
    Tensor<double, Invariant> x(rows, place_of(c));
    std::ranges::fill(x.span(), 1.0);
    M kept(c, Seed{1}), discarding(c, Seed{1});
    kept.reserve_flights(2);
    std::vector<double> expected[2], found[2];
    for (const std::size_t batch : {0U, 1U}) {
      const auto here = kept.forward(x.view(), {.flight = Flight{batch}}).span();
      expected[batch].assign(here.begin(), here.end());
      const auto again = discarding.forward(x.view(), {.flight = Flight{0}}).span();
      found[batch].assign(again.begin(), again.end());
      discarding.discard_batch(Flight{0});
    }
    CHECK(found[0] == expected[0]);
    CHECK(found[1] == expected[1]);
    CHECK(found[0] != found[1]);
    CHECK(message_of<argument_error>([&] { discarding.backward(x.view()); }) != "");
    discarding.discard_step();
    kept.discard_step();
  });
}

TEST_CASE("a block that runs forward again in backward has the bits of one that does not") {
  SUBCASE("text") { check_again<Text<Once>, Text<Recompute>>(text); }
  SUBCASE("images") { check_again<Images<Once>, Images<Recompute>>(images); }
}

TEST_CASE("a block that runs forward again, against one rank and differences") {
  using Block = Sequential<ColumnParallelLinear<6, 10>, Gelu, RowParallelLinear<10, 6>>;
  testing::check_on_ranks(Repeat<2, Recompute<Block>>{},
                          {{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 6}},
                          testing::up_to_rounding);
}

TEST_CASE("misuse of flights is an error, and the batches under way go on") {
  using Net = Sequential<LayerNorm<8>, Linear<split::none, 8, 4>>;
  run_on_ranks(2, [&](Ranks& ranks) {
    Program<Net> program(ranks, text);
    auto& model = program.model;
    const auto fails = [](auto&& call, const std::string& what) {
      try {
        call();
      } catch (const argument_error& e) {
        return std::string(e.what()).find(what) != std::string::npos;
      }
      return false;
    };
    CHECK(model.flights() == 1);
    CHECK(fails([&] { program.forward(Flight{1}, 0); },
                "there is no flight 1: the model has 1, counted from 0. Call reserve_flights(2)"));
    model.reserve_flights(3);
    model.reserve_flights(2);
    CHECK(model.flights() == 3);
    program.forward(Flight{2}, 0);
    CHECK(fails([&] { model.backward(program.slopes[0].view(), Flight{1}); },
                "in the same flight; this is flight 1"));
    program.backward(Flight{2}, 0, true);
    CHECK(fails([&] { model.backward(program.slopes[0].view(), Flight{2}); },
                "backward without a forward before it"));
    program.forward(Flight{1}, 1);
    const Tensor<float, Invariant> wide({text[0], text[1], {Axis::feature, 9}}, place_of(ranks));
    CHECK_THROWS_AS(model.forward(wide.view(), {.flight = Flight{2}}), shape_error);
    program.backward(Flight{1}, 1, true);
    Program<Net> other(ranks, text);
    for (std::size_t k = 0; k < 2; ++k) {
      other.forward(Flight{}, k);
      other.backward(Flight{}, k, true);
    }
    CHECK(program.dx[1] == other.dx[1]);
    program.forward(Flight{1}, 1);
    model.next_step();
    CHECK(fails([&] { model.backward(program.slopes[1].view(), Flight{1}); },
                "backward without a forward before it"));
  });
}

namespace {

// Blocks of a pool have four sizes for each doubling: these fill them on 1, 2 and 4 ranks.
// begin: stack
using Wide = Sequential<ColumnParallelLinear<16, 64>, Gelu, RowParallelLinear<64, 16>>;
template <template <class> class R>
struct Stack : Sequential<Linear<split::none, 16, 16>, R<Residual<Wide>>, R<Residual<Wide>>,
                          R<Residual<Wide>>, Linear<split::none, 16, 16>> {};
// end: stack

constexpr std::size_t stream = 32 * 16, hidden = 32 * 64;
// begin: saved
static_assert(memory_of<Stack<Once>, 2>(batch{32})[0].saved == 4 * stream + 6 * hidden / 2);
static_assert(memory_of<Stack<Recompute>, 2>(batch{32})[0].saved == 4 * stream);
static_assert(memory_of<Stack<Recompute>, 2>(batch{32})[0].recomputed == 2 * hidden / 2);
// end: saved

/// Checks that a forward leaves as many bytes in the model's pool as `memory_of` says, besides its
/// output, and returns this number of elements.
template <class Net, int P>
std::size_t saved_on() {
  const Shape in{{Axis::batch, 32}, {Axis::feature, 16}};
  std::size_t saved = 0;
  run_on_ranks(P, [&](Ranks& ranks) {
    Program<Net> program(ranks, in);
    const Pool& pool = program.model.run().pool;
    const std::size_t before = pool.lent();
    program.model.forward(program.x[0].view());
    const std::size_t output = in.elements() * sizeof(float);
    const RankMemory memory = memory_of<Net, P>(batch{32})[ranks.rank()];
    CHECK(pool.lent() - before - output == memory.saved * sizeof(float));
    if (ranks.rank() == 0) saved = memory.saved;
    program.model.discard_step();
    CHECK(pool.lent() == before);
  });
  return saved;
}

}  // namespace

TEST_CASE("the pool holds what memory_of says that a forward saves") {
  CHECK(saved_on<Stack<Once>, 1>() == 4 * stream + 6 * hidden);
  CHECK(saved_on<Stack<Recompute>, 1>() == 4 * stream);
  CHECK(saved_on<Stack<Once>, 2>() == 4 * stream + 6 * hidden / 2);
  CHECK(saved_on<Stack<Recompute>, 2>() == 4 * stream);
  CHECK(saved_on<Stack<Recompute>, 4>() == 4 * stream);
}
