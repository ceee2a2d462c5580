#pragma once
// Collectives on numbers of the host, for ranks whose collectives may take only device memory.

#include <span>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// A number that every rank has on the host, reduced over the ranks. A collective.
template <class B, Communicator C, Element T>
T all_reduced([[maybe_unused]] B& backend, [[maybe_unused]] Pool& pool, C& ranks, T number,
              Reduction reduction = Reduction::sum) {
  T result = number;
  if constexpr (DeviceBackend<B>) {
    const Buffer memory = pool.take(sizeof(T));
    const std::span<T> there(static_cast<T*>(memory.data()), 1);
    backend.to_device(&number, 1, there.data());
    ranks.all_reduce(std::span<const T>(there), there, reduction);
    backend.to_host(there.data(), 1, &result);
  } else {
    ranks.all_reduce(std::span<const T>(&number, 1), std::span<T>(&result, 1), reduction);
  }
  return result;
}

}  // namespace shardwise::detail
