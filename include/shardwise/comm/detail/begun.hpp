#pragma once
// A collective that is begun on ranks of any kind: under way where they can do that, else made at
// once.

#include <optional>
#include <utility>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/starts_all_reduce.hpp"

namespace shardwise::detail {

/// A collective that was made where it began.
struct MadeAtOnce {
  void progress() {}
  void finish() {}
};

/// A call that was started, see `StartsAllReduce`, or nothing. finish() lets the work that follows
/// wait for it.
template <class Call>
class Started {
 public:
  Started() = default;
  explicit Started(Call call) : call_(std::move(call)) {}
  void progress() {}
  void finish() { call_.reset(); }

 private:
  std::optional<Call> call_;
};

/// The sum that start() starts; another reduction is made at once.
template <class C, class Move, class Start>
auto started_sum(C& ranks, const Move& m, Start start) {
  if (m.reduction == Reduction::sum) return Started(start());
  m.on(ranks);
  return Started<decltype(start())>();
}

///@{
/// The call, over ranks that can start it.
template <StartsAllReduce C, class T>
auto started(C& ranks, const moves::AllReduce<T>& m) {
  return started_sum(ranks, m, [&] { return ranks.start_all_reduce(m.in, m.out); });
}
template <StartsReduceScatter C, class T>
auto started(C& ranks, const moves::ReduceScatter<T>& m) {
  return started_sum(ranks, m, [&] { return ranks.start_reduce_scatter(m.in, m.out, m.counts); });
}
template <StartsAllGather C, class T>
auto started(C& ranks, const moves::AllGather<T>& m) {
  return Started(ranks.start_all_gather(m.in, m.out, m.counts));
}
///@}

/// Whether these ranks can have collectives under way.
template <class C>
constexpr bool can_begin = BeginsCollectives<C> || StartsAllGather<C>;

/// Begins `m`, one of the types of `shardwise::moves` that `BeginsCollectives` names. Returns a
/// `CollectiveUnderWay`. Where ranks can neither begin nor start it, it is made at once.
template <Communicator C, class Move>
auto begun(C& ranks, const Move& m) {
  if constexpr (BeginsCollectives<C>) {
    return m.begun_on(ranks);
  } else if constexpr (requires { started(ranks, m); }) {
    return started(ranks, m);
  } else {
    m.on(ranks);
    return MadeAtOnce{};
  }
}

}  // namespace shardwise::detail
