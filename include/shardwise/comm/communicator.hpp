#pragma once
// The contract of everything that moves data between ranks.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise {

namespace detail {

template <class C, class T>
concept Moves = requires(C& c, std::span<const T> in, std::span<T> out,
                         std::span<const std::size_t> counts, int rank) {
  c.all_reduce(in, out);
  c.all_reduce(in, out, Reduction::max);
  c.all_gather(in, out, counts);
  c.reduce_scatter(in, out, counts);
  c.reduce_scatter(in, out, counts, Reduction::max);
  c.broadcast(out, rank);
  c.gather(in, out, counts, rank);
  c.scatter(in, out, counts, rank);
  c.all_to_all(in, counts, out, counts);
  c.send(in, rank);
  c.send(in, rank, 1);
  c.receive(out, rank);
  c.receive(out, rank, 1);
};

/// What `Collectives` has, for every Element.
template <class C>
concept HasCollectives = Moves<C, float> && Moves<C, double> && Moves<C, bf16> && Moves<C, fp16> &&
    Moves<C, std::int32_t> && Moves<C, std::int64_t> && Moves<C, std::uint8_t> && requires(C& c) {
  c.barrier();
};

}  // namespace detail

/// A group of P ranks, numbered 0 to P-1, seen from one of them.
///
/// Buffers are spans of any `Element` in contiguous memory; `counts` holds P element counts in rank
/// order and is the same on every rank. For a buffer of n elements of T on each rank:
///
///   call                                  result                              reads and writes
///   all_reduce(in, out, op)               out = op over the ranks' in         n
///   all_gather(in, out, counts)           out = blocks of all ranks in order  counts[rank] -> sum
///   reduce_scatter(in, out, counts, op)   out = block `rank` of op over in    sum -> counts[rank]
///   broadcast(data, root)                 data = the root's data              n
///   gather(in, out, counts, root)         all_gather, on the root alone       counts[rank] -> sum
///   scatter(in, out, counts, root)        block `rank` of the root's in       sum -> counts[rank]
///   all_to_all(in, sent, out, received)   block r of out = my block of r's in sums of both counts
///   send(data, to, tag), receive(data, from, tag)   a message between two ranks
///   barrier()                             no rank returns before all have called
///   split(color, key)                     a group of the ranks with equal color, by (key, rank)
///
/// **Who calls.** Collectives (all but send and receive): every rank of the group, in the same
/// order, whatever its data, with equal operation, dtype, reduction, root, elements and counts. In
/// all_to_all, `sent[r]` of rank q equals `received[q]` of rank r. A rank uses a communicator and
/// all its copies from one thread.
///
/// **Buffers.** Empty ones are fine, null pointers included, and do not excuse a rank from the
/// call. `out` of gather and `in` of scatter are used on the root only. `in` of all_reduce may
/// be exactly `out`, `in` of all_gather exactly its own block of `out`; anything else must not
/// overlap, on one rank or between ranks. When a call returns, the rank may reuse its buffers. They
/// are memory of the host, unless the type says `static constexpr bool takes_device_memory = true`.
///
/// **Sums.** They are accumulated in `accumulate_t<T>` and rounded to T once. Each communicator
/// states whether it sums in rank order, so that all ranks and all runs get the same bits.
///
/// **Messages.** send copies and never waits. Messages from one rank to another arrive in the order
/// in which they were sent; dtype, count and tag must be those of the receive, and step and batch
/// of their marks (comm/mark.hpp). Not to itself.
///
/// **Errors.** shape_error and argument_error for what one rank can check alone: sizes that do not
/// match counts, a root that is not a rank of the group. Calls that differ between ranks are a
/// collective_error. A rank that throws or ends while others wait for it is a peer_error on those.
/// Each communicator states whether it finds these two, or whether they end the job.
///
/// **On the wire**, per rank, for buffers of n bytes in all, at least: all_reduce 2n(P-1)/P;
/// all_gather, reduce_scatter, all_to_all n(P-1)/P; broadcast, gather, scatter n at the root.
///
/// Valid:
///     template <Communicator C>
///     float total(C& ranks, float mine) {
///       ranks.all_reduce(std::span<const float>(&mine, 1), std::span(&mine, 1));
///       return mine;
///     }
/// Invalid, because only some ranks call (an error on those, or a wait until the time-out):
///     if (ranks.rank() == 0) ranks.all_reduce(in, out);
template <class C>
concept Communicator = detail::HasCollectives<C> && requires(C& c, const C& constant, int number) {
  { constant.rank() } -> std::same_as<int>;
  { constant.size() } -> std::same_as<int>;
  { c.split(number, number) } -> std::same_as<C>;
};

namespace detail {

/// A communicator whose collectives take memory of a device, and not of the host: it has a static
/// member `takes_device_memory` that is true.
/// valid: `NcclCommunicator`      invalid: `ThreadCommunicator`
template <class C>
concept TakesDeviceMemory = Communicator<C> && requires {
  requires C::takes_device_memory;
};

}  // namespace detail

}  // namespace shardwise
