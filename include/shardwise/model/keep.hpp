#pragma once
// What an optimizer keeps on each rank of a mesh.

#include <cstdint>
#include <string>

#include "shardwise/version.hpp"

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

}  // namespace shardwise
