// Transformers that train: a GPT-2 and a Llama, small, in a tensor, a sequence and a context plan.
// Losses at 1 to 8 ranks are those of one rank; gradients of a block are those of differences.

#include "ranks/model_gpt.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/head_norm.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layers/times.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/gradient_check.hpp"
#include "shardwise/train/step.hpp"
#include "support/far.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/ranks.hpp"

using namespace shardwise;
using namespace testing::gpt;
using testing::filled;
using testing::Ranks;

namespace {

// begin: options
struct LongRope : Rope {
  LongRope() : Rope({.theta = 500000, .scaling = RopeScaling::llama3(8, 1, 4, 8192)}) {}
};
// end: options

// begin: llama
template <class P, std::size_t Groups>
using LlamaAttention =
    Join<Attend<AttentionForm{.readers = heads / Groups, .window = 5}>,
         Sequential<Heads<P, heads, false>, HeadNorm<size>, LongRope>,
         Sequential<Heads<P, Groups, false>, HeadNorm<size>, LongRope>, Heads<P, Groups, false>>;

template <class P, std::size_t Groups>
struct LlamaBlock
    : Sequential<Residual<Sequential<RmsNorm<wide>, LlamaAttention<P, Groups>,
                                     Linear<typename P::second, heads * size, wide, false>>>,
                 Residual<Sequential<RmsNorm<wide>,
                                     Join<Times<activations::Silu>,
                                          Linear<typename P::first, wide, 2 * wide, false>,
                                          Linear<typename P::first, wide, 2 * wide, false>>,
                                     Linear<typename P::second, 2 * wide, wide, false>>>> {};
// end: llama

template <class P, std::size_t Groups>
struct DroppingGpt2 : Gpt2<P, Groups, 1> {};

template <class P, std::size_t Groups>
struct Llama : Sequential<Embedding<vocabulary, wide, typename P::first>, To<typename P::stream>,
                          Repeat<2, LlamaBlock<P, Groups>>, RmsNorm<wide>,
                          Linear<typename P::first, wide, vocabulary, false>> {};

/// Ranks exchange their tokens for heads in front of the attention, and heads for tokens behind it.
template <class P, std::size_t Count>
using Exchanged = Sequential<Heads<P, Count, true>, To<Sharded<Axis::feature>>>;

template <class P, std::size_t Groups>
struct HeadsOfTokens
    : Sequential<Embedding<vocabulary, wide, typename P::first>, To<typename P::stream>,
                 Residual<Sequential<
                     LayerNorm<wide>,
                     Join<Attend<AttentionForm{.readers = heads / Groups}>, Exchanged<P, heads>,
                          Exchanged<P, Groups>, Exchanged<P, Groups>>,
                     To<typename P::stream>, Linear<typename P::second, heads * size, wide>>>,
                 Linear<typename P::first, wide, vocabulary, false>> {};

// begin: documents
// The first row of each, and the number of its rows; row 10 is padding.
const std::vector<Segment> documents{{0, 4}, {4, 6}, {positions, positions}};
// end: documents

/// The losses of 20 steps of AdamW with clipping, on packed documents with padding.
template <template <class, std::size_t> class Net, class P, std::size_t Groups, class T, class C>
std::vector<double> losses_of(C& group) {
  using L = Net<P, Groups>;
  Model<L, Context<T, Reference, C>, Ends<typename P::ids, typename P::logits>> model(
      L{}, group, Seed{3}, text);
  const auto ids = filled<std::int32_t, typename P::ids>(text, place_of(group), token);
  const auto labels = filled<std::int32_t, Invariant>(text, place_of(group), [&](std::size_t i) {
    return i == positions - 1 ? -100 : token(i + 1);
  });
  Optimizer optimizer(model, AdamW{.learning_rate = 1e-2});
  std::vector<double> losses;
  // begin: step
  for (int step = 0; step < 20; ++step)
    losses.push_back(train_step(model, ids.view(), labels.view(), MaskedCrossEntropy{}, optimizer,
                                {.clip_norm = 1.0}, documents));
  // end: step
  return losses;
}

template <template <class, std::size_t> class Net, class P, std::size_t Groups, class T>
void check_plan(const std::vector<double>& alone, double bound) {
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    testing::run_on_ranks(ranks, [&](Ranks& group) {
      CHECK(testing::largest_difference(losses_of<Net, P, Groups, T>(group), alone) < bound);
    });
  }
}

template <template <class, std::size_t> class Net, std::size_t Groups, class T>
std::vector<double> losses_alone() {
  std::vector<double> losses;
  run_ranks(1, [&](ThreadCommunicator& group) {
    losses = losses_of<Net, TensorParallel, Groups, T>(group);
  });
  CHECK(losses.front() > 2.0);
  CHECK(losses.back() < 0.75 * losses.front());
  return losses;
}

template <template <class, std::size_t> class Net, std::size_t Groups>
void check_plans() {
  const std::vector<double> alone = losses_alone<Net, Groups, double>();
  check_plan<Net, TensorParallel, Groups, double>(alone, 1e-12);
  check_plan<Net, SequenceParallel, Groups, double>(alone, 1e-12);
  check_plan<Net, ContextParallel, Groups, double>(alone, 1e-12);
}

}  // namespace

TEST_CASE("GPT-2 has the losses of one rank in every plan") {
  check_plans<DroppingGpt2, 2>();
  check_plan<DroppingGpt2, SequenceParallel, heads, double>(
      losses_alone<DroppingGpt2, heads, double>(), 1e-12);
}

TEST_CASE("Llama has the losses of one rank in every plan") {
  check_plans<Llama, 3>();
  check_plan<Llama, ContextParallel, 1, double>(losses_alone<Llama, 1, double>(), 1e-12);
}

TEST_CASE("ranks that exchange tokens for heads have the losses of one rank") {
  check_plan<HeadsOfTokens, ContextParallel, 2, double>(losses_alone<HeadsOfTokens, 2, double>(),
                                                        1e-12);
}

TEST_CASE("in float the losses agree to its rounding") {
  check_plan<DroppingGpt2, TensorParallel, 3, float>(losses_alone<DroppingGpt2, 3, float>(), 1e-4);
}

TEST_CASE("gradients of a block are those of differences") {
  constexpr Shape rows{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, wide}};
  for (const int ranks : {1, 4}) {
    run_ranks(ranks, [&](ThreadCommunicator& group) {
      const auto check = [](const GradientReport& report) {
        CAPTURE(report.where);
        CHECK(report.passed());
      };
      check(check_gradients(group, Gpt2Block<TensorParallel, 2, 1>{}, rows));
      check(check_gradients(group, LlamaBlock<TensorParallel, 2>{}, rows));
      check(check_gradients<ContextParallel::stream, ContextParallel::stream>(
          group, LlamaBlock<ContextParallel, 3>{}, rows));
    });
  }
}

namespace {

/// The logits of one batch, and all gradients for them as the gradient of the output.
template <class L, class Backend>
std::vector<double> numbers_of(Backend& backend) {
  SingleRank alone;
  Model<L, Context<double, Backend, SingleRank>> model(L{}, alone, Seed{3}, text, backend);
  const auto ids = filled<std::int32_t, Invariant>(text, {}, token);
  const Tensor<std::int32_t, Invariant>& given = ids;
  const auto x = model.to_device(given.view());
  const auto logits = model.to_host(model.forward(x.view(), {.segments = documents}));
  std::vector<double> numbers(logits.data(), logits.data() + logits.size());
  model.backward(model.to_device(logits.view()).view());
  model.settle_gradients();
  std::vector<std::string> names;
  model.visit_parameters([&](const auto& p) { names.push_back(p.name); });
  for (const std::string& name : names) {
    const auto gradient = model.gather_gradient(name);
    numbers.insert(numbers.end(), gradient.data(), gradient.data() + gradient.size());
  }
  return numbers;
}

template <class L>
void check_on_device() {
  Reference host;
  testing::Far device(std::make_shared<testing::FarMemory>());
  CHECK(testing::largest_difference(numbers_of<L>(host), numbers_of<L>(device)) < 1e-12);
}

}  // namespace

TEST_CASE("a device has the numbers of the host, in loops that reach its memory alone") {
  check_on_device<DroppingGpt2<TensorParallel, 2>>();
  check_on_device<Llama<TensorParallel, 3>>();
}
