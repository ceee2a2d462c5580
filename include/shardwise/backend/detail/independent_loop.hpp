#pragma once
// A loop whose rounds do not depend on each other.

#include <cstddef>

namespace shardwise::detail {

/// Calls f(i) for every i in [0, n). Tells the compiler that no round reads what another writes, so
/// that it may vectorise work in place too, where input and output are the same memory.
template <class F>
void independent_loop(std::size_t n, F f) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#elif defined(__GNUC__)
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < n; ++i) f(i);
}

}  // namespace shardwise::detail
