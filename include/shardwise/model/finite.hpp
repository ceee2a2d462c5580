#pragma once
// Finding out which layer makes a value that is no number.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// Throws numeric_error on every rank if any rank's values hold a NaN or an infinity; `what` says
/// what they are.
/// sends    one uint8 all-reduce
template <Communicator C, Element T>
void require_finite(C& ranks, std::span<const T> values, std::string_view what) {
  std::uint8_t bad = 0;
  for (const T value : values) {
    if (!std::isfinite(static_cast<accumulate_t<T>>(value))) bad = 1;
  }
  const std::uint8_t mine = bad;
  ranks.all_reduce(std::span<const std::uint8_t>(&mine, 1), std::span<std::uint8_t>(&bad, 1),
                   Reduction::max);
  if (bad != 0) {
    throw numeric_error(
        std::string(what) +
        " holds a NaN or an infinity, and nothing before it does. "
        "Look at its input's range, at the initial weights, and try a smaller learning rate");
  }
}

}  // namespace shardwise
