#pragma once
// A program that a signal tells to stop: all ranks stop after the same step.

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/model/host_ranks.hpp"

namespace shardwise {

/// The exit code of a program that was told to stop and has saved its run: EX_TEMPFAIL of
/// sysexits.h, which says that the program is to be started again.
inline constexpr int stopped_exit_code = 75;

namespace detail {

/// The first signal that told this process to stop; 0 before it.
inline constinit std::atomic<int> stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler may use no lock");

/// Whether a StopRequest lives.
inline constinit std::atomic<bool> awaits_stop = false;

inline void note_stop(int signal) {
  int none = 0;
  stop_signal.compare_exchange_strong(none, signal);
}

}  // namespace detail

/// While it lives, signals do not end the process: they tell it to stop, and all ranks agree after
/// which step they do so. Make it in `main`, before the ranks, which share it if they are threads:
///
///     StopRequest stop;
///     run_mpi_ranks([&](MpiCommunicator& ranks) {
///       ...
///       HostRanks hosts(model.run());
///       while (steps_are_left()) {
///         train_step(...);
///         const bool ends = stop.agreed(hosts);
///         if (ends || folder.is_due(model)) folder.save(model, optimizer, position);
///         if (ends) return;
///       }
///     });
///     return stop.exit_code();
///
/// A signal takes effect at the next `agreed`, and a second signal changes nothing. So send the
/// signal earlier than the end of the job by the time of a step and a save, and let the StopRequest
/// end where the program does not ask any more.
class StopRequest {
 public:
  /// throws   argument_error for a signal that cannot be handled, such as SIGKILL, and while
  ///          another StopRequest lives; all signals are then handled as before
  explicit StopRequest(std::initializer_list<int> signals = {SIGTERM}) {
    before_.reserve(signals.size());
    if (detail::awaits_stop.exchange(true)) {
      throw argument_error(
          {"StopRequest: this process has another one; make one in main, and pass it to ranks"});
    }
    detail::stop_signal = 0;
    for (const int signal : signals) handle(signal);
  }
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;
  /// Handles signals as before it.
  ~StopRequest() { restore(); }

  /// Whether any rank was told to stop: the same answer on every rank. A collective, which every
  /// rank calls after each step, or after each n-th where a step is shorter than its message.
  /// sends    an all-reduce of one int32; on a device the host waits for the step
  template <detail::AgreeingRanks R>
  bool agreed(R& ranks) {
    std::int32_t told = detail::stop_signal;
    ranks.all_reduce(std::span<const std::int32_t>(&told, 1), std::span(&told, 1), Reduction::max);
    if (told != 0) agreed_ = told;
    return told != 0;
  }

  /// The signal on which the ranks have agreed to stop; 0 if they have not.
  int signal() const { return agreed_; }

  /// `stopped_exit_code` if the ranks have agreed to stop, otherwise 0.
  int exit_code() const { return agreed_ == 0 ? 0 : stopped_exit_code; }

 private:
  void handle(int signal) {
    struct sigaction action {};
    action.sa_handler = detail::note_stop;
    action.sa_flags = SA_RESTART;  // a save that is under way goes on
    struct sigaction old {};
    if (::sigaction(signal, &action, &old) != 0) {
      const int code = errno;
      restore();
      throw argument_error({"StopRequest: signal ", signal,
                            " cannot be handled: ", std::generic_category().message(code)});
    }
    before_.emplace_back(signal, old);
  }

  void restore() noexcept {
    for (; !before_.empty(); before_.pop_back())  // the last first, if a signal was named twice
      ::sigaction(before_.back().first, &before_.back().second, nullptr);
    detail::awaits_stop = false;
  }

  std::vector<std::pair<int, struct sigaction>> before_;
  std::atomic<int> agreed_ = 0;  // ranks that are threads set it at once
};

}  // namespace shardwise
