#pragma once
// The error for the model of one stage of a pipeline where all layers are needed.

#include "shardwise/core/error.hpp"
#include "shardwise/model/model_checks.hpp"

namespace shardwise::detail {

/// Throws argument_error for the model of a stage, where `who` needs the other stages too.
template <class M>
void require_all_layers([[maybe_unused]] const char* who) {
  if constexpr (LayersOfStage<typename M::architecture>)
    throw argument_error({who,
                          ": this model has the layers of one stage of a pipeline, and this needs "
                          "those of all stages, which it cannot reach yet. Train without it, or "
                          "without a pipeline"});
}

}  // namespace shardwise::detail
