#pragma once
// A small random program of threads whose objects a Watchdog polls, and what must come of it.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "schedules/primitives.hpp"
#include "shardwise/comm/detail/watchdog.hpp"

namespace schedules {

/// What came of an object.
struct WatchLog {
  int destroyed = 0;
  bool failed = false;
  bool told = false;  ///< that another has failed
  bool aborted = false;
  bool in_time = false;  ///< its thread saw that it was finished
};

/// Is finished, or fails, at its nth poll.
class Watched {
 public:
  using Status = shardwise::detail::WatchStatus;

  Watched(WatchLog& log, int polls, bool fails) : log_(log), polls_left_(polls), fails_(fails) {}
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() { ++log_.destroyed; }

  Status poll(sim::steady_clock::time_point) {
    sim::this_thread::yield();
    if (log_.aborted) return Status::finished;
    if (--polls_left_ > 0) return Status::active;
    log_.failed = fails_;
    return fails_ ? Status::failed : Status::finished;
  }
  std::string reason() const { return "planted"; }
  void fail(const std::string& why) { log_.told = why == "planted"; }
  static void abort(std::span<const std::unique_ptr<Watched>> all) {
    for (const std::unique_ptr<Watched>& one : all) one->log_.aborted = true;
  }

 private:
  WatchLog& log_;
  int polls_left_;
  bool fails_;
};

/// Two or three threads with up to three objects each, which come and go while the watchdog's
/// thread begins, ends and begins again. Returns a complaint, or an empty text.
inline std::string watch(std::uint64_t seed) {
  using namespace std::chrono_literals;
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed + 3));
  random.discard(2);
  const auto below = [&](unsigned n) { return static_cast<int>(random() / 16 % n); };
  struct Object {
    int polls;
    bool fails;
    int rests;  ///< periods before it is added
    bool wakes;
    WatchLog log{};
  };
  std::array<std::vector<Object>, 3> of_threads;
  for (std::size_t t = 0; t < of_threads.size() - static_cast<std::size_t>(below(2)); ++t)
    for (int n = 1 + below(3); n > 0; --n)
      of_threads[t].push_back({1 + below(3), below(5) == 0, below(3), below(2) == 0});

  constexpr auto period = 10ms;
  shardwise::detail::Watchdog<Watched> watchdog(period);
  std::vector<sim::thread> threads;
  for (std::vector<Object>& objects : of_threads)
    threads.emplace_back([&] {
      for (Object& one : objects) {
        if (one.rests > 0) sim::this_thread::sleep_for(one.rests * period);
        const std::uint64_t added =
            watchdog.add(std::make_unique<Watched>(one.log, one.polls, one.fails)).number;
        if (one.wakes) watchdog.wake();
        one.log.in_time = watchdog.wait_until_finished(added, 20 * period);
      }
    });
  for (sim::thread& thread : threads) thread.join();
  sim::this_thread::sleep_for(3 * period);

  bool one_failed = false;
  for (const std::vector<Object>& objects : of_threads)
    for (const Object& one : objects) {
      if (!one.log.in_time) return "an object that was not polled to its end";
      if (one.log.destroyed != 1) return "an object that was not destroyed once";
      if (one.log.failed && !one.log.aborted) return "a failed object that was not aborted";
      if (one.log.aborted != one.log.told) return "an object that was aborted and not told";
      one_failed |= one.log.failed;
    }
  if (watchdog.has_failed() != one_failed) return "a failure that the watchdog does not know";
  if (sim::scheduler.running() != 1) return "a thread of a watchdog without objects";
  return {};
}

}  // namespace schedules
