#pragma once
// Steps of training of a pipeline, on any ranks and with any backend.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <type_traits>
#include <vector>

#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/pipeline/cut.hpp"
#include "shardwise/pipeline/evaluate.hpp"
#include "shardwise/pipeline/optimizer.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/pipeline/step.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "support/steps_on_mesh.hpp"
#include "witness/formula.hpp"

namespace testing {

inline constexpr std::array after_relu{shardwise::CutPlace{2}};
inline constexpr std::array in_four_stages{shardwise::CutPlace{2}, shardwise::CutPlace{3},
                                           shardwise::CutPlace{4}};

/// What steps of a pipeline may do besides.
struct PipelineWays {
  shardwise::Keep keep = shardwise::Keep::whole;   ///< of the models
  bool gathers_ahead = false;                      ///< parameters
  bool sums_in_backward = false;                   ///< gradients in buckets of 5
  std::array<std::size_t, 4> samples{4, 1, 2, 3};  ///< of each micro-batch
};

/// The losses of three steps of micro-batches of `ways.samples` by this schedule and of an
/// evaluation, and then the rank's parameters. Each rank has a stage, or `Chunks` of them.
template <auto Cut = after_relu, std::size_t Chunks = 1, class B, class Ranks>
std::vector<double> pipeline_steps(B& backend, Ranks& ranks,
                                   const shardwise::PipelineSchedule& schedule,
                                   const PipelineWays& ways = {}) {
  using namespace shardwise;
  using Rows = SamplesOverMesh<Invariant>;
  std::vector<double> told;
  const Shape in{{Axis::batch, 1}, {Axis::feature, 6}};
  const auto train = [&](auto& stages, auto& model, auto& optimizer) {
    std::deque<Tensor<double, Rows>> rows;
    std::deque<Tensor<std::int32_t, Invariant>> classes;
    std::deque<Value<double, Rows>> rows_there;
    std::deque<Value<std::int32_t, Invariant>> classes_there;
    std::vector<View<const double, Rows>> x;
    std::vector<View<const std::int32_t, Invariant>> labels;
    for (std::size_t k = 0; k < static_cast<std::size_t>(schedule.micro_batches()); ++k) {
      const std::size_t samples = ways.samples[k];
      const Shape shape{{Axis::batch, samples}, in[1]};
      auto& batch = rows.emplace_back(shape, stages.place());
      for (std::size_t i = 0; i < batch.size(); ++i)
        batch[i] = witness::made(static_cast<std::int64_t>(k), static_cast<std::int64_t>(i));
      auto& chosen = classes.emplace_back(Shape{shape[0]}, place_for<Invariant>(stages.place()));
      for (std::size_t i = 0; i < samples; ++i)
        chosen[i] = witness::made_label(static_cast<std::int64_t>(i), 5);
      rows_there.push_back(model.to_device(batch.view()));
      classes_there.push_back(model.to_device(chosen.view()));
      x.push_back(rows_there.back().view());
      labels.push_back(classes_there.back().view());
    }
    for (int step = 0; step < 3; ++step)
      told.push_back(train_pipeline_step(stages, schedule, x, labels, CrossEntropy{}, optimizer));
    told.push_back(evaluate_loss(stages, x, labels, CrossEntropy{}));
  };
  on_pipeline_stage<Context<double, B, Ranks>, Cut, Ends<Invariant, Invariant>, Chunks>(
      InThreeGroups{}, ranks, Seed{5}, in, backend,
      [&](auto& stages) {
        if (ways.sums_in_backward)
          stages.for_each([](auto& stage) { stage.model().run().sending.bucket_bytes = 40; });
        if constexpr (Chunks == 1) {
          Optimizer optimizer(stages.model(), AdamW{});
          train(stages, stages.model(), optimizer);
        } else {
          PipelineOptimizer optimizer(stages, AdamW{});
          stages.for_each([&]<class Stage>(Stage& stage) {
            if constexpr (Stage::number < Stage::stages / Chunks)  // the first one
              train(stages, stage.model(), optimizer);
          });
        }
        stages.for_each([&](auto& stage) {
          std::vector<double> values(stage.model().values().size());
          shardwise::detail::to_host(backend, stage.model().values().data(), values.size(),
                                     values.data());
          told.insert(told.end(), values.begin(), values.end());
        });
      },
      {.keep = ways.keep,
       .sums_meanwhile = ways.sums_in_backward,
       .layers_ahead = ways.gathers_ahead ? 1U : 0U});
  return told;
}

}  // namespace testing
