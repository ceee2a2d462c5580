#pragma once
// An optional feature of communicators whose ranks share memory: a rank reads the buffers of its
// peers without a copy.

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
/// calls f(std::span<const T* const> buffers), and returns when no rank reads `mine` any more.
/// buffers[r] points to the elements that rank r published, in the memory of r or in a copy of it.
/// It may be null if there are none. Their number follows from `call`.
///
/// It is a collective with the same rules and errors. f runs on every rank, must be noexcept, must
/// not write to published memory, and must not call a communicator. So a redistribution of strided
/// blocks copies directly from its peers, without packing.
template <class C>
concept ReadsPeers = Communicator<C> &&
    requires(C& c, const Call& call, std::span<const float> mine, detail::PeerReaderArchetype f) {
  c.read_peers(call, mine, f);
};

}  // namespace shardwise
