#pragma once
// A cache of plans.

#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// The last `capacity` plans in use, the latest first, and the permanent plans. A training loop
/// needs two, for a full batch and for the last one, and a transposed convolution six in one cache:
/// for each the product of its forward, and the gradient of its weight, written and added. So a
/// lookup takes few comparisons.
template <class Key, class Plan>
class PlanCache {
 public:
  static constexpr std::size_t capacity = 8;

  /// The plan of `key`; calls make() if there is none. If it `stays`, it is never dropped.
  template <class Make>
  Plan& get(const Key& key, Make make, bool stays = false) {
    if (const auto plan = find(staying_, key); plan != staying_.end()) return plan->second;
    if (const auto plan = find(latest_, key); plan != latest_.end())
      latest_.splice(latest_.begin(), latest_, plan);
    else
      latest_.emplace_front(key, make());
    if (stays) {
      staying_.splice(staying_.begin(), latest_, latest_.begin());
      return staying_.front().second;
    }
    if (latest_.size() > capacity) latest_.pop_back();
    return latest_.front().second;
  }

 private:
  using Plans = std::list<std::pair<Key, Plan>>;

  static typename Plans::iterator find(Plans& plans, const Key& key) {
    return std::find_if(plans.begin(), plans.end(),
                        [&](const auto& plan) { return plan.first == key; });
  }

  Plans latest_;
  Plans staying_;
};

}  // namespace shardwise::detail
