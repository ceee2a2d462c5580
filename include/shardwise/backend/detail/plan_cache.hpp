#pragma once
// Plans by what they were made for.

#include <cstddef>
#include <list>
#include <utility>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// The `capacity` plans that were used last, the latest first. A training loop needs two (a
/// full batch and the last one), so looking one up is a comparison or two.
template <class Key, class Plan>
class PlanCache {
 public:
  static constexpr std::size_t capacity = 8;

  /// The plan of `key`; made by make() if it is not there.
  template <class Make>
  Plan& get(const Key& key, Make make) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (!(entry->first == key)) continue;
      if (entry != entries_.begin()) entries_.splice(entries_.begin(), entries_, entry);
      return entries_.front().second;
    }
    entries_.emplace_front(key, make());
    if (entries_.size() > capacity) entries_.pop_back();
    return entries_.front().second;
  }

 private:
  std::list<std::pair<Key, Plan>> entries_;
};

}  // namespace shardwise::detail
