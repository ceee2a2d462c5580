#pragma once
// The distance between the random numbers of two samples.

#include <cstdint>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

/// The distance between the random numbers of two neighbouring samples of L's input, in elements of
/// the whole batch. The layer is bound to `bound`.
template <class L, class Context>
std::uint64_t sample_elements([[maybe_unused]] const Run<Context>& run,
                              [[maybe_unused]] const Shape& in,
                              [[maybe_unused]] const Shape& bound) {
  if constexpr (draws_random<L>) {
    const Shape whole = over_all_slices(run, in, bound);
    if (whole.rank() > 0 && whole[0].axis == Axis::batch) return whole.elements(1, whole.rank());
    if constexpr (MeshCommunicator<typename Context::communicator>) {
      if (run.trains() && sample_ranks(run.all_ranks.sizes()) > 1)
        throw shape_error({"the input is a tensor ", in,
                           ", and the layer draws random numbers for its elements: on ranks that "
                           "have different samples this needs the batch as outermost axis"});
    }
    if (run.trains() && run.in_step.first_sample > 0) {
      throw shape_error({"the input is a tensor ", in,
                         ", and an earlier batch of this step has drawn the random numbers of its "
                         "elements: a step of several batches needs the batch as outermost axis"});
    }
  }
  return 0;
}

}  // namespace shardwise::detail
