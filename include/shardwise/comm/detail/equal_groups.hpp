#pragma once
// Which ranks have the same of something.

#include <cstddef>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/growing_list.hpp"

namespace shardwise::detail {

/// Ranks of a group, by their numbers in it.
using SomeRanks = GrowingList<std::size_t>;

/// A function of two things, to which this refers: valid during the call that it is made for. So
/// what takes one is compiled once.
template <class T>
class Relation {
 public:
  template <class F>
  Relation(const F& holds)
      : holds_(&holds), call_([](const void* f, const T& a, const T& b) {
          return (*static_cast<const F*>(f))(a, b);
        }) {}

  bool operator()(const T& a, const T& b) const { return call_(holds_, a, b); }

 private:
  const void* holds_;
  bool (*call_)(const void*, const T&, const T&);
};

/// The ranks 0 to ranks - 1 in groups of equal ones, in the order of their first members.
[[gnu::cold]] GrowingList<SomeRanks> groups_of_equal(std::size_t ranks,
                                                     Relation<std::size_t> equal);

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE GrowingList<SomeRanks> groups_of_equal(std::size_t ranks,
                                                        Relation<std::size_t> equal) {
  GrowingList<SomeRanks> groups;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::size_t g = 0;
    while (g < groups.size() && !equal(groups[g][0], r)) ++g;
    if (g == groups.size()) groups.add({});
    groups[g].add(r);
  }
  return groups;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
