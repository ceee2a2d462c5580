#pragma once
// What a model may be told when it is made, besides its ranks, seed and sizes.

#include <cstddef>
#include <cstdint>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/sending.hpp"

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
  /// Settles gradients in collectives of at most this many bytes, but of at least one element.
  std::size_t bucket_bytes = default_bucket_bytes;
  /// On a mesh with several ranks along `data` and along `replica` or `context`: sums gradients
  /// over them as a hierarchical all-reduce, which is a reduce-scatter along `data`, an all-reduce
  /// of the shares along the others, and an all-gather along `data`. Over D ranks and R others each
  /// sends 2 n (1 - 1/(D R)) bytes for n of gradients in place of 2 n (2 - 1/D - 1/R), and along
  /// the others only 2 n/D (1 - 1/R), for one or two more latencies a bucket. The bits are the
  /// same. Every Keep but `whole` always sums so.
  bool sums_in_shares = false;
  /// On a mesh: sums gradients over the ranks that have other samples while backward goes on. A
  /// `Step` sums each bucket of `bucket_bytes` in its last batch, as soon as all layers have
  /// added to it; with a Keep that cuts gradients each backward sums those of a layer while the
  /// layer before it runs. Bits are the same. Calls are too, in another order, but for an optimizer
  /// with Keep::state_over_data, which then gets its sums in the buckets of whole gradients.
  bool sums_meanwhile = false;
  /// With Keep::all_over_data: how many layers with parameters ranks gather ahead of the one that
  /// runs, forward and backward. Bits and calls are the same.
  std::size_t layers_ahead = 0;
  /// In which steps ranks that compare their calls also compare what they were given: in the first
  /// step of the model by `Step` or `train_step`, and every so many steps after it; 0 for never.
  /// They compare seed, type and sizes of the model, and inputs and targets that are `Invariant` or
  /// `Replicated`, on a mesh also the slices of such that ranks along `tensor` share; if these
  /// differ, the first call of the step is a collective_error that says what differs on which
  /// ranks. Sends nothing: fingerprints go with the comparison of calls. A step that compares reads
  /// inputs and targets once more, and on a device the host waits for that.
  std::uint64_t compare_given_every = 20;
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
