#pragma once
// Finds the layer that makes a NaN or an infinity.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/redistribute/number.hpp"

namespace shardwise::detail {

/// 1 for a value that is not finite.
template <class T>
struct IsNotFinite {
  const T* values;
  constexpr std::uint8_t operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    const A value = static_cast<A>(values[i]);
    const A largest = std::numeric_limits<A>::max();
    return value >= -largest && value <= largest ? 0 : 1;
  }
};

/// Throws numeric_error on every rank if the values of any rank have a NaN or an infinity; `what`
/// names the values in the message.
/// sends    one uint8 all-reduce
template <class B, Communicator C, Element T>
void require_finite(B& backend, Pool& pool, C& ranks, std::span<const T> values,
                    std::string_view what) {
  const auto mine = reduced(backend, pool, values.size(), std::uint8_t{0},
                            IsNotFinite<T>{values.data()}, Largest{});
  if (all_reduced(backend, pool, ranks, mine, Reduction::max) == 0) return;
  throw numeric_error(
      {what,
       " holds a NaN or an infinity, and nothing before it does. "
       "Look at its input's range, at the initial weights, and try a smaller learning rate"});
}

}  // namespace shardwise::detail
