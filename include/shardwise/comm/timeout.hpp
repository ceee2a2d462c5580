#pragma once
// How long a rank waits for others before it gives up.

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "shardwise/core/error.hpp"

namespace shardwise {

/// The time-out of ranks whose options name none: the variable SHARDWISE_TIMEOUT in whole seconds,
/// or ten minutes if it is not set. 0 means to wait without end. Allocates nothing.
/// throws  argument_error if the variable is no such number
inline std::chrono::milliseconds default_timeout() {
  const char* const variable = std::getenv("SHARDWISE_TIMEOUT");
  const std::string_view text = variable == nullptr ? "" : variable;
  if (text.empty()) return std::chrono::minutes(10);
  int seconds = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (code != std::errc() || end != text.data() + text.size() || seconds < 0)
    throw argument_error({"SHARDWISE_TIMEOUT is '", text,
                          "'; it must be a whole number of seconds, or 0 to wait without end"});
  return std::chrono::seconds(seconds);
}

}  // namespace shardwise
