#pragma once
// What a model on a mesh moves between ranks while its layers run.

#include <optional>

#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/model/model_options.hpp"
#include "shardwise/model/overlapped_sums.hpp"
#include "shardwise/model/prefetched_parameters.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

/// `IsOnMesh` says whether the Context has MeshRanks.
template <class Context, bool IsOnMesh>
struct Traffic {
  std::optional<PrefetchedParameters<Context>> gathers{};
  std::optional<OverlappedSums<Context>> sums{};

  /// Once the parameters have their places. Refers to the run, and stays where it is.
  /// sends    with Keep::all_over_data an all-gather of a number
  /// throws   collective_error if `layers_ahead` differs between ranks
  void begin(Run<Context>& run, const ModelOptions& options) {
    if (cuts_parameters(options.keep))
      require_agreed(gathered(run.all_ranks, options.layers_ahead),
                     "how many layers the model gathers ahead");
    if (options.layers_ahead > 0) gathers.emplace(run, options.layers_ahead);
    if (options.sums_meanwhile) sums.emplace(run);
  }
};
template <class Context>
struct Traffic<Context, false> {
  void begin(Run<Context>&, const ModelOptions&) {}
};

}  // namespace shardwise::detail
