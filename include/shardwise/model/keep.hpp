#pragma once
// What an optimizer keeps on each rank of a mesh.

#include <cstdint>
#include <string>

#include "shardwise/core/error.hpp"

namespace shardwise {

/// The parameters that the optimizer of a rank updates, and whose moments it keeps there.
enum class Keep : std::uint8_t {
  /// All that the rank holds. Ranks along `data` and `replica` do the same.
  whole,
  /// One of equal shares over the ranks along `data`, which then gather the new parameters.
  /// source   ZeRO, stage 1: Rajbhandari et al. 2020
  state_over_data
};

/// "Keep::state_over_data".
inline std::string to_string(Keep keep) {
  return keep == Keep::whole ? "Keep::whole" : "Keep::state_over_data";
}

namespace detail {

/// Throws argument_error for a Keep that cuts, where there is no mesh.
inline void require_whole(const char* who, Keep keep) {
  if (keep == Keep::whole) return;
  throw argument_error({who, ": ", keep,
                        " cuts what an optimizer keeps over the ranks along the axis data of a "
                        "mesh, but this model is on no mesh: make the model on MeshRanks, or leave "
                        "Keep out"});
}

}  // namespace detail

}  // namespace shardwise
