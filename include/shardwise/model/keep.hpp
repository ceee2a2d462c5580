#pragma once
// What each rank of a mesh keeps of parameters, gradients and moments between steps.

#include <cstdint>
#include <string>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// The parameters that the optimizer of a rank updates, and what the rank keeps from step to step.
enum class Keep : std::uint8_t {
  /// All parameters that the rank holds. Ranks along `data` and `replica` do the same.
  whole,
  /// The optimizer updates one of equal shares over the ranks along `data`, and keeps the moments
  /// of it. The ranks then gather the new parameters.
  /// source   ZeRO, stage 1: Rajbhandari et al. 2020
  state_over_data,
  /// The rank also keeps only the gradients of that share. Each layer sums its gradients of a batch
  /// along `data` when it has run backward. The model is made with it.
  /// source   ZeRO, stage 2: Rajbhandari et al. 2020
  gradients_over_data,
  /// The model has only that share of the parameters and of their gradients, too. Each layer
  /// gathers its parameters when it runs. The model is made with it.
  /// source   ZeRO, stage 3: Rajbhandari et al. 2020; fully sharded data parallelism
  all_over_data
};

///@{
/// What of it is cut over the ranks along `data`: the moments of an optimizer, the gradients that a
/// rank keeps from batch to batch, and the parameters that it stores.
constexpr bool cuts_moments(Keep keep) { return keep != Keep::whole; }
constexpr bool cuts_gradients(Keep keep) { return keep >= Keep::gradients_over_data; }
constexpr bool cuts_parameters(Keep keep) { return keep == Keep::all_over_data; }
///@}

namespace detail {

/// Whether a rank stores parameters that others update, so that it gets them after each update.
constexpr bool gathers_updated(Keep keep) { return cuts_moments(keep) && !cuts_parameters(keep); }

}  // namespace detail

/// "Keep::state_over_data".
std::string to_string(Keep keep);

namespace detail {

/// Throws argument_error for a Keep that cuts, where there is no mesh.
void require_whole(const char* who, Keep keep);

/// Throws argument_error for an optimizer that is to keep other parameters than its model has.
void require_kept_by_model(Keep optimizer, Keep model);

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE std::string to_string(Keep keep) {
  switch (keep) {
    case Keep::whole:
      return "Keep::whole";
    case Keep::state_over_data:
      return "Keep::state_over_data";
    case Keep::gradients_over_data:
      return "Keep::gradients_over_data";
    default:
      return "Keep::all_over_data";
  }
}

}  // namespace shardwise

namespace shardwise::detail {

SHARDWISE_INLINE void require_whole(const char* who, Keep keep) {
  if (keep == Keep::whole) return;
  throw argument_error({who, ": ", keep,
                        " cuts what is kept over the ranks along the axis data of a mesh, but this "
                        "model is on no mesh: make the model on MeshRanks, or leave Keep out"});
}

SHARDWISE_INLINE void require_kept_by_model(Keep optimizer, Keep model) {
  if (optimizer == model) return;
  if (!cuts_gradients(optimizer) && !cuts_gradients(model)) return;
  throw argument_error({"Optimizer: ", optimizer, " for a model that was made with ", model,
                        ": a model has a share of its gradients or parameters only if it is made "
                        "with Keep::gradients_over_data or Keep::all_over_data, and its optimizer "
                        "can then keep nothing else. Give the Keep to the Model, and leave it out "
                        "here"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
