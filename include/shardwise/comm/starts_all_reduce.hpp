#pragma once
// What communicators offer whose collectives can run beside other work of the rank.

#include <concepts>
#include <span>

#include "shardwise/comm/communicator.hpp"

namespace shardwise {

/// A communicator with
///
///     template <class T>
///     auto start_all_reduce(std::span<const T> in, std::span<T> out);
///
/// It begins `all_reduce(in, out)`, behind all that the rank was given to do so far, and returns an
/// object that can be moved. What the rank is given to do next may run beside it. Nothing that it
/// is given behind the end of that object begins before the sum is there: so an exception cannot
/// free memory that is still written to. Until then nobody writes to `in`, and nobody reads or
/// writes `out`.
///
/// It is a collective: same rules, same errors, and it counts as an all_reduce. The rank may call
/// others meanwhile, which come behind it; it may then be waited for early. Objects that live at
/// the same time end in any order.
///
///     const auto sum = ranks.start_all_reduce(in, out);
///     compute_something_else();  // out is there behind the end of this block
///
/// valid: `NcclCommunicator`      invalid: `ThreadCommunicator`, whose calls are done at return
template <class C>
concept StartsAllReduce = Communicator<C> &&
    requires(C& c, std::span<const float> in, std::span<float> out) {
  { c.start_all_reduce(in, out) } -> std::move_constructible;
};

}  // namespace shardwise
