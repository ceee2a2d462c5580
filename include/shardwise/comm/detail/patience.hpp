#pragma once
// How long a rank waits for others: when it says so, when it gives up, and in which words.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/ranks_text.hpp"
#include "shardwise/comm/timeout.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// The time that a wait of this thread has lasted, counted in polls. Between two polls at most
/// `slice` counts, so a program that was stopped and continued has not waited meanwhile.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::milliseconds;

  enum class Event {
    none,
    warning,  ///< once
    timeout   ///< from now on at each poll
  };

  static constexpr Duration slice{100};

  /// The wait begins now. It has no end if `timeout` is 0; nor in `patiently`, without a warning.
  Patience(Duration timeout, Clock::time_point now) : timeout_(timeout), last_(now) {}

  Event poll(Clock::time_point now);

  /// A tenth of the time-out, and at most a minute.
  static Duration warning_after(Duration timeout) {
    constexpr Duration minute = std::chrono::minutes(1);
    return timeout > Duration::zero() ? std::min(minute, timeout / 10) : minute;
  }

 private:
  Duration timeout_;
  Clock::time_point last_;
  Clock::duration waited_{};
  bool warned_ = false;
};

/// "60 s", "1500 ms"
std::string duration_text(Patience::Duration duration);

/// The call in which a rank waits.
struct WaitPlace {
  const Call* call = nullptr;
  std::uint64_t number = 0;      ///< of the collective in its group, from 1; 0 if it has none
  std::span<const int> group{};  ///< world ranks that take part

  /// For example "barrier(), collective 3 of ranks 0, 2".
  std::string describe() const;
};

/// "rank 0 has waited 60 s for ranks 1, 2". `missing` is a list of numbers.
template <class Ranks>
std::string waited_text(int rank, Patience::Duration time, const Ranks& missing) {
  return sentence(
      {"rank ", rank, " has waited ", duration_text(time), " for ", ranks_text(missing)});
}

/// What the error of a time-out says at its end.
inline constexpr const char* timeout_advice =
    "; a rank that does not come has stopped, computes without end, or makes another call. If it "
    "only needs longer, set the option `timeout`, or SHARDWISE_TIMEOUT in seconds";

/// One line on standard error. `text` is empty if there was no memory for it.
void print_warning(const std::string& text);

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

#include <cstdio>

namespace shardwise::detail {

SHARDWISE_INLINE Patience::Event Patience::poll(Clock::time_point now) {
  if (is_patient) return Event::none;
  waited_ += std::min<Clock::duration>(now - last_, slice);
  last_ = now;
  // In milliseconds: a long time-out has no number of nanoseconds.
  const Duration waited = std::chrono::floor<Duration>(waited_);
  if (timeout_ > Duration::zero() && waited >= timeout_) return Event::timeout;
  if (warned_ || waited < warning_after(timeout_)) return Event::none;
  warned_ = true;
  return Event::warning;
}

SHARDWISE_INLINE std::string duration_text(Patience::Duration duration) {
  const auto ms = duration.count();
  return ms % 1000 == 0 ? sentence({ms / 1000, " s"}) : sentence({ms, " ms"});
}

SHARDWISE_INLINE std::string WaitPlace::describe() const {
  std::string text = to_string(*call);
  if (number != 0) append(text, {", collective ", number});
  append(text, {" of ", ranks_text(group)});
  return text;
}

SHARDWISE_INLINE void print_warning(const std::string& text) {
  std::fprintf(stderr, "shardwise: %s\n",
               text.empty() ? "a rank has waited long, and is out of memory to say for which"
                            : text.c_str());
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
