#pragma once
// A loop whose iterations do not depend on each other.

#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// Calls f(i) for every i in [0, n). Tells g++ that no iteration reads what another one writes, so
/// that it vectorises the loop even if input and output are the same memory; clang does so without
/// this.
template <class F>
void independent_loop(std::size_t n, F f) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < n; ++i) f(i);
}

}  // namespace shardwise::detail
