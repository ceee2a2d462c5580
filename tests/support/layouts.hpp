#pragma once
// Every layout of a three-axis tensor, and every pair of them, as lists that tests walk.

#include <utility>

#include "shardwise/redistribute/redistribute.hpp"

namespace testing {

template <shardwise::Layout... Ls>
struct LayoutList {
  static constexpr std::size_t size = sizeof...(Ls);
};

using AllLayouts = LayoutList<shardwise::Invariant, shardwise::Replicated, shardwise::Partial,
                              shardwise::Sharded<shardwise::Axis::batch>,
                              shardwise::Sharded<shardwise::Axis::sequence>,
                              shardwise::Sharded<shardwise::Axis::feature>>;

template <shardwise::Layout... Ls, class F>
constexpr void for_each_layout(LayoutList<Ls...>, F&& f) {
  (f.template operator()<Ls>(), ...);
}

/// Calls f<From, To>() for every pair of layouts between which there is a redistribution.
template <class F>
constexpr void for_each_pair(F&& f) {
  for_each_layout(AllLayouts{}, [&]<class From>() {
    for_each_layout(AllLayouts{}, [&]<class To>() {
      if constexpr (shardwise::redistributable<From, To>) f.template operator()<From, To>();
    });
  });
}

}  // namespace testing
