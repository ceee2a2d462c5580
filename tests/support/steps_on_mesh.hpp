#pragma once
// Steps of training on a mesh of any ranks and with any backend, for each Keep.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/step.hpp"
#include "witness/formula.hpp"

namespace testing {

/// Parameters that are split, that are whole, and whose gradients are summands.
struct InThreeGroups
    : shardwise::Sequential<shardwise::ColumnParallelLinear<6, 7>, shardwise::Relu,
                            shardwise::RowParallelLinear<7, 5>,
                            shardwise::To<shardwise::Sharded<shardwise::Axis::batch>>,
                            shardwise::Linear<shardwise::split::none, 5, 5>,
                            shardwise::To<shardwise::Invariant>> {};

/// The losses and norms of three steps of two batches, and then the rank's parameters. If they
/// overlap, gradients are summed while backward goes on, in buckets of 5 if ranks keep all of them,
/// and parameters are gathered ahead if ranks store shares of them.
template <bool Overlap = false, class B, class Ranks>
std::vector<double> steps_on_mesh(B& backend, Ranks& ranks, shardwise::Keep keep) {
  using namespace shardwise;
  using M = Model<InThreeGroups, Context<float, B, Ranks>>;
  M model(InThreeGroups{}, ranks, Seed{5}, {}, backend,
          {.keep = cuts_gradients(keep) ? keep : Keep::whole,
           .bucket_bytes = Overlap ? 20 : default_bucket_bytes,
           .sums_meanwhile = Overlap,
           .layers_ahead = Overlap && cuts_parameters(keep) ? 1U : 0U});
  Optimizer optimizer(model, AdamW{}, keep);
  const Shape rows{{Axis::batch, 7}, {Axis::feature, 6}};
  if (detail::gathers_updated(keep))
    CHECK(optimizer.moments().size() ==
          AdamW{}.moments() * updated_parameters_of_rank<typename M::ends>(
                                  model.layers(), ranks.place(), rows, keep));
  if constexpr (Overlap) CHECK(model.run().traffic != nullptr);
  std::vector<double> told;
  for (std::int64_t number = 0; number < 3; ++number) {
    Step step(optimizer, 10, {.clip_norm = 0.5});
    for (const std::size_t samples : {std::size_t{7}, std::size_t{3}}) {
      Tensor<float, SamplesOverMesh<Invariant>> x({{Axis::batch, samples}, {Axis::feature, 6}},
                                                  ranks.place());
      for_each_global_run(x.view(), [&](std::size_t global, std::size_t local, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          x[local + i] =
              static_cast<float>(witness::made(number, static_cast<std::int64_t>(global + i)));
      });
      Tensor<std::int32_t, Invariant> labels({{Axis::batch, samples}},
                                             place_for<Invariant>(ranks.place()));
      for (std::size_t row = 0; row < samples; ++row)
        labels[row] = witness::made_label(static_cast<std::int64_t>(row) + number, 5);
      const auto x_there = model.to_device(x.view());
      const auto labels_there = model.to_device(labels.view());
      told.push_back(step.add(x_there.view(), labels_there.view(), CrossEntropy{}));
    }
    told.push_back(step.finish().norm.value_or(0));
  }
  std::vector<float> values(model.values().size());
  detail::to_host(backend, model.values().data(), values.size(), values.data());
  told.insert(told.end(), values.begin(), values.end());
  return told;
}

}  // namespace testing
