#pragma once
// A collective that is begun on ranks of any kind: under way where they can do that, else made at
// once.

#include <optional>
#include <utility>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/starts_all_reduce.hpp"

namespace shardwise::detail {

/// A collective that was made where it began.
struct MadeAtOnce {
  void progress() {}
  void finish() {}
};

/// A sum that was started, see `StartsAllReduce`. finish() lets the work that follows wait for it.
template <class Sum>
class StartedSum {
 public:
  explicit StartedSum(Sum sum) : sum_(std::move(sum)) {}
  void progress() {}
  void finish() { sum_.reset(); }

 private:
  std::optional<Sum> sum_;
};

template <class C, class Move>
inline constexpr bool is_started = false;
template <StartsAllReduce C, class T>
inline constexpr bool is_started<C, moves::AllReduce<T>> = true;

/// Begins `m`, one of the types of `shardwise::moves` that `BeginsCollectives` names. Returns a
/// `CollectiveUnderWay`. Where ranks have none of the two features it is made at once.
template <Communicator C, class Move>
auto begun(C& ranks, const Move& m) {
  if constexpr (BeginsCollectives<C>) {
    return m.begun_on(ranks);
  } else if constexpr (is_started<C, Move>) {
    return StartedSum(ranks.start_all_reduce(m.in, m.out));
  } else {
    m.on(ranks);
    return MadeAtOnce{};
  }
}

}  // namespace shardwise::detail
