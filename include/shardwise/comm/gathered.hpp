#pragma once
// A small value of each rank, gathered in memory of the host on ranks of any kind.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/span_of.hpp"

namespace shardwise {

/// The values of all ranks in rank order, in memory of the host, also on ranks whose collectives
/// take memory of a device. Those have a member `gathered(mine)` for it. A collective; it sends an
/// all-gather of sizeof(T) bytes of each rank, and the host waits for it.
template <class T, Communicator C>
std::vector<T> gathered(C& ranks, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>, "ranks send the bytes of a T");
  if constexpr (requires { ranks.gathered(mine); }) {
    return ranks.gathered(mine);
  } else {
    static_assert(
        !detail::TakesDeviceMemory<C>,
        "the communicator C takes memory of a device, and has no member `gathered(mine)` that "
        "gathers values of the host. Write it as comm/gathered.hpp says.");
    std::vector<T> all(static_cast<std::size_t>(ranks.size()));
    const std::vector<std::size_t> counts(all.size(), sizeof(T));
    ranks.all_gather(
        detail::span_of(reinterpret_cast<const std::uint8_t*>(&mine), sizeof(T)),
        detail::span_of(reinterpret_cast<std::uint8_t*>(all.data()), all.size() * sizeof(T)),
        counts);
    return all;
  }
}

}  // namespace shardwise
