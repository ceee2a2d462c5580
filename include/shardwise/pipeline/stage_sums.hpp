#pragma once
// What the stages of a pipeline sum together at the end of a step, known before it runs.

#include <cstddef>
#include <set>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/parameter_layout.hpp"
#include "shardwise/model/sending.hpp"
#include "shardwise/model/settle_moves.hpp"
#include "shardwise/pipeline/stage_ties.hpp"
#include "shardwise/train/step_options.hpp"

namespace shardwise {

/// The all-reduces along `pipeline` in one step, in the order in which they are called.
struct StageSums {
  CollectiveList loss;    ///< so that all ranks know it
  CollectiveList tied;    ///< of the gradients of parameters that stages share
  int tied_stages = 1;    ///< the number of ranks that have such stages, which alone make these
  CollectiveList finish;  ///< whether gradients overflowed, and their norm

  /// Bytes that all ranks together send, see `Collective::bytes_sent`.
  std::size_t bytes_sent(mesh sizes) const {
    const std::size_t by_all = loss.bytes_sent(sizes) + finish.bytes_sent(sizes);
    sizes.pipeline = tied_stages;
    return by_all + tied.bytes_sent(sizes);
  }
};

/// The sums over stages in one step of `whole`, which is cut at the places of `Cut`, for inputs of
/// shape `in` on a mesh of these sizes. `keep` is that of the optimizer, `sending` that of the
/// models of the stages. What a stage sums by itself is in its `plan_step`.
template <auto Cut, class E = Ends<Invariant, Invariant>, class L>
StageSums plan_stage_sums(const L& whole, const shapes_t<typename E::offered>& in,
                          const mesh& sizes, const StepOptions& options = {},
                          Keep keep = Keep::whole, const Sending& sending = {}) {
  StageSums sums;
  const auto number = [](std::size_t count, Dtype dtype) {
    return all_reduce(count, dtype).over(MeshAxis::pipeline);
  };
  sums.loss.add(number(1, Dtype::float64));
  if (options.scaler != nullptr) sums.finish.add(number(1, Dtype::uint8));
  if (options.clip_norm) sums.finish.add(number(Cut.size() + 1, Dtype::float64));

  const auto stages = detail::stage_ties<E>(whole, in, Cut, 0, Place{}).stages;
  if (stages.empty()) return sums;
  std::set<std::size_t> ranks;
  for (const std::size_t stage : stages)
    ranks.insert(stage % static_cast<std::size_t>(sizes.pipeline));
  sums.tied_stages = static_cast<int>(ranks.size());
  for (const detail::Holding holding : detail::holdings) {
    if (!detail::is_on_stages(holding)) continue;
    detail::GrowingList<std::size_t> here;
    for (int place = 0; place < (is_split(holding) ? sizes.tensor : 1); ++place) {
      here.add(0);
      for (const detail::TiedOverStages& one :
           detail::stage_ties<E>(whole, in, Cut, *stages.begin(), Place{place, sizes.tensor}).here)
        for (const detail::ParameterSlot& slot : one.slots)
          if (slot.holding == holding) here[here.size() - 1] += slot.size;
    }
    const auto held = detail::used_gradients(keep, sizes);
    detail::add_calls(sums.tied, detail::moves_along(MeshAxis::pipeline, held), here, sizes,
                      sending);
  }
  return sums;
}

}  // namespace shardwise
