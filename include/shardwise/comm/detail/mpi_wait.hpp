#pragma once
// How a process waits for messages of MPI: it polls, says after a while for whom it waits, and
// gives up after the time-out.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/patience.hpp"
#include "shardwise/comm/timeout.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise::detail::mpi {

/// What a wait says about itself.
struct MessageWait {
  int rank = 0;  ///< of the world, which waits
  Patience::Duration timeout{};
  WaitPlace place{};
  bool is_for_others_too = false;  ///< the other rank may itself wait for a third one

  /// "rank 0 has waited 60 s for rank 1, which may itself wait for another"
  std::string describe(Patience::Duration time, std::span<const int> missing) const {
    return waited_text(rank, time, missing) +
           (is_for_others_too ? ", which may itself wait for another" : "");
  }
};

/// An exchange that goes on while its rank does other things, whenever the rank helps it. Each wait
/// of the thread that began it does: the ranks for which it waits may themselves wait for that
/// exchange.
class InBackground {
 public:
  InBackground() = default;
  InBackground(const InBackground&) = delete;
  InBackground& operator=(const InBackground&) = delete;
  virtual ~InBackground() = default;

  /// Does what can be done without a wait, for all exchanges of this thread. Errors are kept for
  /// their owners.
  static void help_all() noexcept {
    for (InBackground* one = newest; one != nullptr; one = one->next_) one->help();
  }

 protected:
  virtual void help() noexcept = 0;

  void enter() {
    next_ = newest;
    newest = this;
  }
  void leave() {
    InBackground** at = &newest;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
  }

 private:
  inline static thread_local InBackground* newest = nullptr;
  InBackground* next_ = nullptr;
};

/// Polls until done(). After the time-out it throws a peer_error that names missing(), world ranks;
/// if that has none, the wait has just ended.
template <class Done, class Missing>
void poll_until(Done done, Missing missing, const MessageWait& wait) {
  for (int polls = 0; polls < 1000; ++polls)  // without a look at the clock
    if (done()) return;
  Patience patience(wait.timeout, Patience::Clock::now());
  while (!done()) {
    InBackground::help_all();
    if (is_patient)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    else
      std::this_thread::yield();
    const Patience::Event event = patience.poll(Patience::Clock::now());
    if (event == Patience::Event::none) continue;
    const std::vector<int> ranks = missing();
    if (ranks.empty()) continue;
    if (event == Patience::Event::timeout)
      throw peer_error(
          {"in ", wait.place.describe(), ": ", wait.describe(wait.timeout, ranks), timeout_advice});
    print_warning(wait.describe(Patience::warning_after(wait.timeout), ranks) + " in " +
                  wait.place.describe());
  }
}

inline bool is_done(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) return true;  // of which SimGrid's SMPI 3.32 says nothing
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

/// Whether all are, without a wait.
inline bool are_done(std::span<MPI_Request> requests) {
  return std::ranges::all_of(requests, [](MPI_Request& one) { return is_done(one); });
}

/// The partners of requests that are not done, each once, in order.
inline std::vector<int> missing_partners(std::span<const MPI_Request> requests,
                                         std::span<const int> partners) {
  std::vector<int> missing;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    int done = 0;
    check(MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE), "MPI_Request_get_status");
    if (done == 0) missing.push_back(partners[i]);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

/// Waits until all requests are done, for one after the other: MPI_Waitall would only say that one
/// of them failed, and not why. `partners` are the world ranks at their other sides.
/// throws  peer_error after the time-out, and what check() throws; then the requests that are not
///         done stay as they are
///
/// For errors of requests MPICH 4.0 asks the handler of MPI_COMM_WORLD, which is the
/// caller's: unless that is MPI_ERRORS_RETURN, the job ends here in MPICH's words.
inline void wait_all(std::span<MPI_Request> requests, std::span<const int> partners,
                     const MessageWait& wait) {
  auto next = requests.begin();
  poll_until(
      [&] {
        while (next != requests.end() && is_done(*next)) ++next;
        return next == requests.end();
      },
      [&] { return missing_partners(requests, partners); }, wait);
}

/// Before `error` leaves the owner of memory to which MPI may still write: ends the job unless all
/// requests are done.
inline void end_job_if_pending(std::span<const MPI_Request> requests, int rank,
                               const std::exception& error) noexcept {
  for (const MPI_Request request : requests) {
    int done = 0;
    MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
    if (done == 0) end_job(sentence_or({"rank ", rank, ": ", error.what()}, "out of memory"));
  }
}

}  // namespace shardwise::detail::mpi
