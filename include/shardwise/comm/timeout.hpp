#pragma once
// How long a rank waits for others before it gives up, and waits that have no end.

#include <chrono>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

namespace detail {

/// The time-out of ranks whose options name none: the variable SHARDWISE_TIMEOUT in whole seconds,
/// or ten minutes if it is not set. 0 means to wait without end. Allocates nothing.
/// throws  argument_error if the variable is no such number
std::chrono::milliseconds default_timeout();

/// Whether waits of this thread for other ranks have no end.
inline constinit thread_local bool is_patient = false;

}  // namespace detail

/// Calls f(), and returns what it returns. In the calls that f makes of thread ranks and of
/// processes of MPI, this rank waits as long as it takes, for a prompt or a job that may come
/// tomorrow: no time-out ends the wait, no line says that it is long, and it leaves the core to
/// others. A process then looks for messages a thousand times a second, so the first call ends up
/// to a millisecond or two later. Errors of other ranks end the wait as always. Each rank that is
/// to wait so calls it; calls over NCCL keep their time-out.
template <class F>
decltype(auto) patiently(F&& f) {
  struct Meanwhile {
    bool before = std::exchange(detail::is_patient, true);
    ~Meanwhile() { detail::is_patient = before; }
  };
  [[maybe_unused]] const Meanwhile here;
  return std::forward<F>(f)();
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace shardwise::detail {

SHARDWISE_INLINE std::chrono::milliseconds default_timeout() {
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

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
