#pragma once
// Steps of training of a pipeline of two stages, on any ranks.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/prefetched_parameters.hpp"
#include "shardwise/pipeline/cut.hpp"
#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/pipeline/step.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "support/steps_on_mesh.hpp"
#include "witness/formula.hpp"

namespace testing {

inline constexpr std::array after_relu{shardwise::CutPlace{2}};

/// The losses of three steps of three micro-batches by ZB-H1, and then the rank's parameters, which
/// are gathered ahead if that is said.
template <class Ranks>
std::vector<double> pipeline_steps(Ranks& ranks, shardwise::Keep keep = shardwise::Keep::whole,
                                   bool gathers_ahead = false) {
  using namespace shardwise;
  std::vector<double> told;
  const Shape in{{Axis::batch, 1}, {Axis::feature, 6}};
  on_pipeline_stage<Context<double, Reference, Ranks>, after_relu>(
      InThreeGroups{}, ranks, Seed{5}, in,
      [&](auto& stage) {
        using M = std::remove_reference_t<decltype(stage.model())>;
        std::optional<PrefetchedParameters<M>> prefetched;
        if (gathers_ahead) prefetched.emplace(stage.model());
        Optimizer optimizer(stage.model(), AdamW{});
        std::deque<Tensor<double, SamplesOverMesh<Invariant>>> rows;
        std::deque<Tensor<std::int32_t, Invariant>> classes;
        std::vector<View<const double, SamplesOverMesh<Invariant>>> x;
        std::vector<View<const std::int32_t, Invariant>> labels;
        for (const std::size_t samples : {std::size_t{4}, std::size_t{1}, std::size_t{2}}) {
          const Shape shape{{Axis::batch, samples}, in[1]};
          auto& batch = rows.emplace_back(shape, stage.place());
          for (std::size_t i = 0; i < batch.size(); ++i)
            batch[i] =
                witness::made(static_cast<std::int64_t>(samples), static_cast<std::int64_t>(i));
          auto& chosen = classes.emplace_back(Shape{shape[0]}, place_for<Invariant>(stage.place()));
          for (std::size_t i = 0; i < samples; ++i)
            chosen[i] = witness::made_label(static_cast<std::int64_t>(i), 5);
          x.push_back(std::as_const(batch).view());
          labels.push_back(std::as_const(chosen).view());
        }
        for (int step = 0; step < 3; ++step)
          told.push_back(train_pipeline_step(stage, zero_bubble_h1(2, 3), x, labels, CrossEntropy{},
                                             optimizer));
        const auto values = stage.model().values();
        told.insert(told.end(), values.begin(), values.end());
      },
      keep);
  return told;
}

}  // namespace testing
