#pragma once
// The messages between the stages of a pipeline in a step, known before it runs.

#include <cstddef>
#include <span>
#include <utility>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/plan_entries.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/stage_layers.hpp"
#include "shardwise/pipeline/stage_message.hpp"

namespace shardwise {

/// What one rank along `pipeline` sends to other stages in one step, in the order of the schedule.
/// Each message is a Collective with Operation::send along `pipeline`, which the ranks of a stage
/// send together.
struct MessagePlan {
  CollectiveList outputs;    ///< to later stages
  CollectiveList gradients;  ///< to earlier stages

  /// Bytes that all ranks with this place along `pipeline` send.
  constexpr std::size_t bytes_sent(const mesh& sizes) const {
    return outputs.bytes_sent(sizes) + gradients.bytes_sent(sizes);
  }
};

namespace detail {

/// The message at place `Place` of `whole` for a micro-batch of shape `in`: the value there, or its
/// gradient, which is as large.
template <CutPlace Place, class E, class L>
constexpr Collective message_at(const L& whole, const mesh& sizes,
                                const shapes_t<typename E::offered>& in, Dtype dtype) {
  const Shape shape = shape_at<Place>(whole, in);
  const Collective message = split_by_samples(
      Collective{Operation::send, shape.elements(), dtype}.over(MeshAxis::pipeline), shape, sizes,
      Axis::sequence);
  const bool is_split = SplitLayout<typename layout_at_cut<L, E, Place>::type> && sizes.tensor > 1;
  return is_split ? message.split_over(MeshAxis::tensor) : message;
}

}  // namespace detail

/// The messages that rank `rank` along `pipeline` sends in one step of `whole`, which is cut at the
/// places of `Cut`, on a mesh of these sizes. `micro_batches` are the shapes of the inputs, `dtype`
/// is that of the values between layers. In constant expressions too:
///
///     constexpr std::array micro_batches{shape, shape, shape, shape};
///     static_assert(plan_messages<cut>(Gpt{}, sizes, one_f_one_b(2, 4), micro_batches, 0)
///                       .bytes_sent(sizes) < 4_MiB);
///
/// throws   errors of layers that do not take such inputs
template <auto Cut, class E = Ends<Invariant, Invariant>, class L>
constexpr MessagePlan plan_messages(const L& whole, const mesh& sizes,
                                    const PipelineSchedule& schedule,
                                    std::span<const shapes_t<typename E::offered>> micro_batches,
                                    int rank, Dtype dtype = Dtype::float32) {
  MessagePlan plan;
  for (const PipelineSchedule::Action& action : schedule.of(rank)) {
    const detail::StageMessage message = detail::given_by(schedule, rank, action);
    if (!message.exists()) continue;
    const auto cut = static_cast<std::size_t>(message.is_gradient() ? message.to : message.from);
    const auto& in = micro_batches[static_cast<std::size_t>(message.micro_batch)];
    CollectiveList& list = message.is_gradient() ? plan.gradients : plan.outputs;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      ((Is == cut ? list.add(detail::message_at<Cut[Is], E>(whole, sizes, in, dtype)) : void()),
       ...);
    }
    (std::make_index_sequence<Cut.size()>{});
  }
  return plan;
}

}  // namespace shardwise
