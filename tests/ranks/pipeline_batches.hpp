#pragma once
// Pipelines for tests: their stages with an optimizer, and micro-batches, whose rows are those of
// one batch.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ranks/model_mesh.hpp"
#include "shardwise/pipeline/evaluate.hpp"
#include "shardwise/pipeline/known_schedules.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/pipeline/step.hpp"
#include "shardwise/shardwise.hpp"
#include "support/each_rank.hpp"
#include "support/trained.hpp"
#include "witness/formula.hpp"

namespace testing::on_meshes {

template <class T>
using OnThreadMesh = Context<T, Reference, ThreadMesh>;

/// Calls f(stages, optimizer) with the rank's stage, or its `Chunks` stages, of `net`.
template <auto Cut, std::size_t Chunks = 1, class E = Ends<Invariant, Invariant>,
          class Ctx = OnThreadMesh<double>, class Net, class In, class Rule, class F>
void with_stages(const Net& net, typename Ctx::communicator& ranks, const In& in, const Rule& rule,
                 F&& f, Keep keep = Keep::whole, Seed seed = Seed{5}, ModelOptions options = {}) {
  if (cuts_gradients(keep)) options.keep = keep;
  on_pipeline_stage<Ctx, Cut, E, Chunks>(
      net, ranks, seed, in,
      [&](auto& stages) {
        if constexpr (Chunks == 1) {
          Optimizer optimizer(stages.model(), rule, keep);
          f(stages, optimizer);
        } else {
          PipelineOptimizer optimizer(stages, rule, keep);
          f(stages, optimizer);
        }
      },
      options);
}

/// The views of several tensors are a tuple, too.
template <class T, class L>
auto view_of(const Tensor<T, L>& tensor) {
  return tensor.view();
}
template <class... Tensors>
auto view_of(const std::tuple<Tensors...>& several) {
  return std::apply([](const auto&... one) { return std::tuple{one.view()...}; }, several);
}

/// Inputs and targets of batches, of so many samples each: input(first, count) and
/// target(first, count) make those from the sample `first` on, a tensor or a tuple of several.
template <class X, class Y>
struct Batches {
  template <class Input, class Target>
  Batches(const std::vector<std::size_t>& sizes, Input&& input, Target&& target) {
    std::size_t first = 0;
    for (const std::size_t count : sizes) {
      inputs.push_back(view_of(x.emplace_back(input(first, count))));
      targets.push_back(view_of(y.emplace_back(target(first, count))));
      first += count;
    }
  }

  std::deque<X> x{};
  std::deque<Y> y{};
  std::vector<decltype(view_of(std::declval<const X&>()))> inputs{};
  std::vector<decltype(view_of(std::declval<const Y&>()))> targets{};
};
template <class Input, class Target>
Batches(const std::vector<std::size_t>&, Input&&, Target&&)
    -> Batches<std::invoke_result_t<Input, std::size_t, std::size_t>,
               std::invoke_result_t<Target, std::size_t, std::size_t>>;

constexpr Shape shape_of(std::size_t samples) {
  return {{Axis::batch, samples}, {Axis::feature, 6}};
}

/// Element i of the rows from `first` on.
inline double element_of_rows(std::size_t first, std::size_t i) {
  return witness::made(7, static_cast<std::int64_t>(first * 6 + i));
}

/// Rows of a batch: those of micro-batches follow each other.
inline Tensor<double, Whole> rows_of(std::size_t first, std::size_t count, const MeshPlace& place) {
  return filled<double, Whole>(shape_of(count), place,
                               [&](std::size_t i) { return element_of_rows(first, i); });
}

/// Rows of six features and their labels.
struct MicroBatches : Batches<Tensor<double, Whole>, Tensor<std::int32_t, Invariant>> {
  MicroBatches(const std::vector<std::size_t>& sizes, const MeshPlace& place)
      : Batches(
            sizes,
            [&](std::size_t first, std::size_t count) { return rows_of(first, count, place); },
            [&](std::size_t first, std::size_t count) {
              return labels(count, static_cast<std::int64_t>(first), place);
            }) {}
};

/// A step of the rank's stages with cross entropy; returns the loss.
template <class Stages, class Optimizers, class X, class Y>
double step_of(Stages& stages, Optimizers& optimizer, const PipelineSchedule& schedule,
               const Batches<X, Y>& batches, const StepOptions& options = {}) {
  return train_pipeline_step(stages, schedule, batches.inputs, batches.targets, CrossEntropy{},
                             optimizer, options);
}

}  // namespace testing::on_meshes
