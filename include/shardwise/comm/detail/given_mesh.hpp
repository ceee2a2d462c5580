#pragma once
// The mesh that each rank was given, and the comparison of those of all ranks.

#include <string>
#include <vector>

#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// The sizes of a mesh and the order of its ranks, as a rank was given them.
struct GivenMesh {
  mesh sizes;
  MeshOrder order;

  friend bool operator==(const GivenMesh&, const GivenMesh&) = default;
  /// "data=2,tensor=4", or "data=2,tensor=4 in the order ..." if the order is not the usual one.
  friend std::string to_string(const GivenMesh& given) {
    if (given.order == mesh_axes) return to_string(given.sizes);
    return sentence({given.sizes, " in the order ", given.order});
  }
};

/// throws  argument_error unless `order` names each axis once
inline void check_order(const MeshOrder& order) {
  for (const MeshAxis axis : mesh_axes) {
    bool is_named = false;
    for (const MeshAxis named : order) is_named |= named == axis;
    if (!is_named)
      throw argument_error({"mesh: the order of ranks is ", order, "; it leaves out ", name(axis),
                            ", and must name each axis once"});
  }
}

/// The mesh of all ranks, of which `all` has that of each.
/// throws  the same on all ranks: collective_error if they differ, argument_error if the order does
///         not name each axis once, or if the sizes do not fit the number of ranks
inline mesh agreed_mesh(const std::vector<GivenMesh>& all) {
  require_agreed(all, "the mesh");
  check_order(all[0].order);
  return all[0].sizes.on_ranks(static_cast<int>(all.size()));
}

}  // namespace shardwise::detail
