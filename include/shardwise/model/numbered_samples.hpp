#pragma once
// Random numbers of layers are those of the samples of a step.

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

/// throws   shape_error if L, which is bound to `bound`, draws a random number for each element of
///          its input, and these have no numbers among those of all samples of the step
template <class L, class Context>
void require_numbered_samples([[maybe_unused]] const Run<Context>& run,
                              [[maybe_unused]] const Shape& in,
                              [[maybe_unused]] const Shape& bound) {
  if constexpr (draws_random<L>) {
    const Shape whole = over_all_slices(run, in, bound);
    if (whole.rank() > 0 && whole[0].axis == Axis::batch) return;
    if constexpr (MeshCommunicator<typename Context::communicator>) {
      if (run.pass.trains() && sample_ranks(run.all_ranks.sizes()) > 1)
        throw shape_error({"the input is a tensor ", in,
                           ", and the layer draws random numbers for its elements: on ranks that "
                           "have different samples this needs the batch as outermost axis"});
    }
    if (run.pass.trains() && run.step.batch.first_sample > 0) {
      throw shape_error({"the input is a tensor ", in,
                         ", and an earlier batch of this step has drawn the random numbers of its "
                         "elements: a step of several batches needs the batch as outermost axis"});
    }
  }
}

}  // namespace shardwise::detail
