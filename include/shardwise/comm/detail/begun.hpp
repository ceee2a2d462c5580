#pragma once
// The type of a collective that is under way along an axis of a mesh.

#include <utility>

#include "shardwise/core/mesh.hpp"

namespace shardwise::detail {

/// That of `Move`, one of `shardwise::moves`, on a mesh of ranks that `BeginsCollectives`.
template <class Ranks, class Move>
using begun_along_t =
    decltype(std::declval<const Move&>().begun_on(std::declval<Ranks&>().along(MeshAxis::data)));

}  // namespace shardwise::detail
