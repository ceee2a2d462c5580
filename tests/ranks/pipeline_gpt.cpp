// A GPT-2 over all axes of a mesh at once has the losses and parameters of one rank: tensor, data,
// context and pipeline, with its first and last layer sharing a table, and with shares of moments.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ranks/model_mesh.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/plan.hpp"
#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/pipeline/step.hpp"
#include "shardwise/shardwise.hpp"
#include "support/largest_difference.hpp"

using namespace shardwise;
using testing::largest_difference;
using namespace testing::on_meshes;

namespace {

using Ctx = Context<double, Reference, MeshRanks<ThreadCommunicator>>;
using E = Ends<TensorPlan::ids, TensorPlan::logits>;
using Ids = SamplesOverMesh<TensorPlan::ids>;

constexpr std::size_t vocabulary = 13;
constexpr int steps = 3;
constexpr AdamW rule{.learning_rate = 0.01};
constexpr std::array cut{CutPlace{4, 1}};  // behind the first of three blocks

auto gpt() {
  return gpt2<TensorPlan, Gpt2Form{.dropped = 1, .of = 10}, 3>({.vocabulary = vocabulary,
                                                                .positions = 7,
                                                                .features = 12,
                                                                .hidden = 10,
                                                                .heads = 6,
                                                                .layers = 3});
}

constexpr Shape text(std::size_t samples) { return {{Axis::batch, samples}, {Axis::sequence, 5}}; }

/// Token ids from the sample `first` on, each `later` tokens behind that of an input.
template <Layout L>
Tensor<std::int32_t, L> tokens(std::size_t first, std::size_t samples, std::size_t later,
                               const MeshPlace& place) {
  return filled<std::int32_t, L>(text(samples), place, [=](std::size_t i) {
    const std::size_t n = first * 5 + i + later;
    return static_cast<std::int32_t>(n * n % vocabulary);
  });
}

struct Result {
  std::vector<double> losses{};
  std::map<std::string, std::vector<double>> parameters{};
};

/// All parameters but the biases of keys: their gradients are rounding alone, because a softmax
/// does not change with them, and AdamW makes steps of any gradient.
template <class M>
void collect(M& model, Result& result) {
  std::vector<std::string> names;
  model.visit_parameters([&](auto& p) {
    if (!p.name.ends_with(".0.1.1.bias")) names.push_back(p.name);
  });
  for (const std::string& name : names) {
    const auto whole = model.gather(name);
    result.parameters[name].assign(whole.data(), whole.data() + whole.size());
  }
}

Result on_one_rank(std::size_t samples) {
  Result result;
  run_mesh({}, [&](MeshRanks<ThreadCommunicator>& ranks) {
    Model<decltype(gpt()), Ctx, E> model(gpt(), ranks, Seed{5}, text(dynamic));
    Optimizer optimizer(model, rule);
    const auto x = tokens<Ids>(0, samples, 0, ranks.place());
    const auto next = tokens<Invariant>(0, samples, 1, ranks.place());
    for (int step = 0; step < steps; ++step)
      result.losses.push_back(
          train_step(model, x.view(), next.view(), CrossEntropy{}, optimizer, {.clip_norm = 0.3}));
    collect(model, result);
  });
  return result;
}

Result on_pipeline(MeshRanks<ThreadCommunicator>& ranks, const PipelineSchedule& schedule,
                   const std::vector<std::size_t>& sizes) {
  Result result;
  on_pipeline_stage<Ctx, cut, E>(gpt(), ranks, Seed{5}, text(1), [&](auto& stage) {
    Optimizer optimizer(stage.model(), rule, Keep::state_over_data);
    std::deque<Tensor<std::int32_t, Ids>> ids;
    std::deque<Tensor<std::int32_t, Invariant>> next;
    std::vector<View<const std::int32_t, Ids>> x;
    std::vector<View<const std::int32_t, Invariant>> targets;
    std::size_t first = 0;
    for (const std::size_t samples : sizes) {
      ids.push_back(tokens<Ids>(first, samples, 0, stage.place()));
      next.push_back(tokens<Invariant>(first, samples, 1, stage.place()));
      x.push_back(std::as_const(ids.back()).view());
      targets.push_back(std::as_const(next.back()).view());
      first += samples;
    }
    for (int step = 0; step < steps; ++step)
      result.losses.push_back(train_pipeline_step(stage, schedule, x, targets, CrossEntropy{},
                                                  optimizer, {.clip_norm = 0.3}));
    collect(stage.model(), result);
  });
  return result;
}

}  // namespace

TEST_CASE("a GPT-2 over tensor, data, context and pipeline is that of one rank") {
  const Result one = on_one_rank(5);
  for (const mesh& sizes : {mesh{.pipeline = 2, .data = 2, .context = 2, .tensor = 2},
                            mesh{.pipeline = 2, .context = 3, .tensor = 2}}) {
    CAPTURE(to_string(sizes));
    run_mesh(sizes, [&](MeshRanks<ThreadCommunicator>& ranks) {
      const Result many = on_pipeline(ranks, one_f_one_b(2, 3), {2, 1, 2});
      CHECK(largest_difference(many.losses, one.losses) < 1e-12);
      for (const auto& one_of : many.parameters) {
        INFO(one_of.first);
        CHECK(largest_difference(one_of.second, one.parameters.at(one_of.first)) < 1e-12);
      }
    });
  }
}
