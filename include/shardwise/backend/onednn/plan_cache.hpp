#pragma once
// A cache of oneDNN's primitives.

#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/backend/onednn/primitive.hpp"

namespace shardwise::detail::onednn {

template <class Key, class Plan = Primitive>
using PlanCache = detail::PlanCache<Key, Plan>;

}  // namespace shardwise::detail::onednn
