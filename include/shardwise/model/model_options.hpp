#pragma once
// What a model may be told when it is made, besides its ranks, seed and sizes.

#include <cstddef>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/model/keep.hpp"

namespace shardwise {

/// Options of a Model, the same on every rank:
///
///     Model model(ranks, Seed{1}, {.keep = Keep::all_over_data, .layers_ahead = 1});
///
/// `sums_meanwhile` and `layers_ahead` are for ranks that have collectives under way while they
/// compute, over MPI or NCCL. On others, such as threads, a model does the same without them.
struct ModelOptions {
  /// On a mesh: what each rank along `data` stores of parameters and gradients.
  Keep keep = Keep::whole;
  /// On a mesh: sums gradients over the ranks that have other samples while backward goes on. A
  /// `Step` sums each bucket of `set_bucket_bytes` in its last batch, as soon as all layers have
  /// added to it; with a Keep that cuts gradients each backward sums those of a layer while the
  /// layer before it runs. Bits are the same. Calls are too, in another order, but for an optimizer
  /// with Keep::state_over_data, which then gets its sums in the buckets of whole gradients.
  bool sums_meanwhile = false;
  /// With Keep::all_over_data: how many layers with parameters ranks gather ahead of the one that
  /// runs, forward and backward. Bits and calls are the same.
  std::size_t layers_ahead = 0;
  /// For a ForwardOnly model: draws no initial values, which a load would overwrite. The model is
  /// used after `load_weights`, and until then its calls are an argument_error.
  bool to_be_loaded = false;
};

namespace detail {

/// Throws argument_error for options that a model on these ranks, or for this use, cannot have.
void require_options(const ModelOptions& options, bool is_on_mesh, bool trains);

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void require_options(const ModelOptions& options, bool is_on_mesh, bool trains) {
  if (!is_on_mesh) require_whole("Model", options.keep);
  if (!is_on_mesh && (options.sums_meanwhile || options.layers_ahead > 0))
    throw argument_error(
        "Model: sums_meanwhile and layers_ahead are for messages along the axes of a mesh, and "
        "this model is on none: make it on MeshRanks, or leave them out");
  if (options.sums_meanwhile && !trains)
    throw argument_error(
        "Model: sums_meanwhile sums gradients, and this model has none: leave it out, or make the "
        "model for Train");
  if (options.layers_ahead > 0 && !cuts_parameters(options.keep))
    throw argument_error({"Model: layers_ahead for ", options.keep,
                          ", with which each rank has all parameters and gathers none. Give "
                          "Keep::all_over_data, or leave layers_ahead out"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
