#pragma once
// An optional feature of communicators: an all-reduce whose messages are under way while the rank
// computes.

#include <concepts>
#include <span>

#include "shardwise/comm/communicator.hpp"

namespace shardwise {

/// A communicator with
///
///     template <class T>
///     auto begin_all_reduce(std::span<const T> in, std::span<T> out);
///
/// It begins `all_reduce(in, out)` and returns a movable object with
///
///     progress()   lets the sum go on as far as it can without a wait
///     finish()     waits until it is made; throws what the all_reduce would, or one that this rank
///                  has begun before
///
/// Other than a sum that is started (comm/starts_all_reduce.hpp), it goes on only when the rank
/// calls one of these, or waits in another call. Until finish() has returned, do not write to `in`,
/// and do not read or write `out`. An object that is destroyed before waits, too, and its errors
/// are lost: that is for a rank that already throws one.
///
/// It is a collective with the same rules and errors as an all_reduce and the same bits, and counts
/// as one. Several may be under way. Another collective of the same group first waits for them. All
/// ranks of the group begin it: one that makes an all_reduce instead makes another call.
///
///     auto sum = ranks.begin_all_reduce(in, out);
///     for (Part& part : parts) {
///       part.compute();
///       sum.progress();
///     }
///     sum.finish();
///
/// valid: `MpiCommunicator`      invalid: `ThreadCommunicator`, whose ranks add themselves
template <class C>
concept BeginsAllReduce = Communicator<C> &&
    requires(C& c, std::span<const float> in, std::span<float> out) {
  { c.begin_all_reduce(in, out) } -> std::move_constructible;
  c.begin_all_reduce(in, out).progress();
  c.begin_all_reduce(in, out).finish();
};

}  // namespace shardwise
