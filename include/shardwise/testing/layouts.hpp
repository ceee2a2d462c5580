#pragma once
// Lists of all layouts of a tensor [batch, sequence, feature], and of all pairs of them.

#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise::detail::oracle {

/// A list of layouts.
template <Layout... Ls>
struct LayoutList {
  static constexpr std::size_t size = sizeof...(Ls);  ///< layouts
};

/// All but those of halos, which depend on a window.
using AllLayouts = LayoutList<Invariant, Replicated, Partial, Sharded<Axis::batch>,
                              Sharded<Axis::sequence>, Sharded<Axis::feature>>;

/// Calls f<L>() for every layout of the list.
template <Layout... Ls, class F>
constexpr void for_each_layout(LayoutList<Ls...>, F&& f) {
  (f.template operator()<Ls>(), ...);
}

/// Calls f<From, To>() for every pair of layouts between which there is a redistribution.
template <class F>
constexpr void for_each_pair(F&& f) {
  for_each_layout(AllLayouts{}, [&]<class From>() {
    for_each_layout(AllLayouts{}, [&]<class To>() {
      if constexpr (redistributable<From, To>) f.template operator()<From, To>();
    });
  });
}

}  // namespace shardwise::detail::oracle
