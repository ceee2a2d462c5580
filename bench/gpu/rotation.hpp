#pragma once
// Tensors that take turns, so that a cache flatters nobody.

#include <algorithm>
#include <cstddef>

namespace bench {

/// How many sets of tensors a benchmark goes around in, so that none is in the cache when its turn
/// comes again. `bytes` are those that a call reads and writes.
constexpr std::size_t sets_beyond_cache(std::size_t bytes, std::size_t cache) {
  return 1 + 2 * cache / std::max<std::size_t>(bytes, 1);
}

}  // namespace bench
