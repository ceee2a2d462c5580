#pragma once
// An optional feature of communicators: collectives that overlap with other work of the rank.

#include <concepts>
#include <cstddef>
#include <span>

#include "shardwise/comm/communicator.hpp"

namespace shardwise {

/// A communicator with
///
///     template <class T>
///     auto start_all_reduce(std::span<const T> in, std::span<T> out);
///
/// It begins `all_reduce(in, out)` after all work that the rank has enqueued so far, and returns a
/// movable object. Work that the rank enqueues while the object lives may overlap with the sum.
/// Work that it enqueues after the object is destroyed begins when the sum is done. So an exception
/// cannot free memory to which the sum still writes. While the object lives, do not write to `in`,
/// and do not read or write `out`.
///
/// It is a collective with the same rules and errors, and counts as an all_reduce. The rank may
/// make other calls meanwhile, which run after it; they may wait for it early. Objects that live at
/// the same time may be destroyed in any order.
///
///     const auto sum = ranks.start_all_reduce(in, out);
///     compute_something_else();  // out is ready after the end of this block
///
/// valid: `NcclCommunicator`      invalid: `ThreadCommunicator`, whose calls are done at return
template <class C>
concept StartsAllReduce = Communicator<C> &&
    requires(C& c, std::span<const float> in, std::span<float> out) {
  { c.start_all_reduce(in, out) } -> std::move_constructible;
};

/// One that also has
///
///     template <class T>
///     auto start_reduce_scatter(std::span<const T> in, std::span<T> out,
///                               std::span<const std::size_t> counts);
///
/// which does the same with `reduce_scatter(in, out, counts)`.
template <class C>
concept StartsReduceScatter = StartsAllReduce<C> &&
    requires(C& c, std::span<const float> in, std::span<float> out,
             std::span<const std::size_t> counts) {
  { c.start_reduce_scatter(in, out, counts) } -> std::move_constructible;
};

/// One that also has
///
///     template <class T>
///     auto start_all_gather(std::span<const T> in, std::span<T> out,
///                           std::span<const std::size_t> counts);
///
/// which does the same with `all_gather(in, out, counts)`.
template <class C>
concept StartsAllGather = StartsReduceScatter<C> &&
    requires(C& c, std::span<const float> in, std::span<float> out,
             std::span<const std::size_t> counts) {
  { c.start_all_gather(in, out, counts) } -> std::move_constructible;
};

}  // namespace shardwise
