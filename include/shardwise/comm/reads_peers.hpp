#pragma once
// What communicators offer whose ranks share memory: reading a peer's buffer where it lies.

#include <span>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/communicator.hpp"

namespace shardwise {

namespace detail {

struct PeerReaderArchetype {
  template <class T>
  void operator()(std::span<const T* const>) const noexcept {}
};

}  // namespace detail

/// A communicator with
///
///     template <class T, class F>
///     void read_peers(const Call& call, std::span<const T> mine, F&& f);
///
/// It publishes `mine`, waits until all ranks of the group have arrived and have agreed on `call`,
/// calls f(std::span<const T* const> buffers), and returns when nobody reads `mine` any more.
/// buffers[r] points to the elements that rank r published (how many, the ranks know by what
/// `call` says; it may be null if there are none), in r's own memory or in a copy of it.
///
/// It is a collective: same rules, same errors. f runs on every rank, must be noexcept, must not
/// write to published memory, and must not call a communicator. A redistribution of blocks with
/// strides copies from its peers in one step this way, without packing.
template <class C>
concept ReadsPeers = Communicator<C> &&
    requires(C& c, const Call& call, std::span<const float> mine, detail::PeerReaderArchetype f) {
  c.read_peers(call, mine, f);
};

}  // namespace shardwise
