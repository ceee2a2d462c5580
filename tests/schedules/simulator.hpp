#pragma once
// Threads of which one runs at a time. A seed decides at each atomic operation, lock, wait and
// notification which thread is next. So a seed is a schedule, and repeats.

#include <cxxabi.h>
#include <ucontext.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace sim {

using Time = std::chrono::nanoseconds;

/// What the C++ runtime keeps of the exceptions of one thread.
struct Exceptions {
  void* caught = nullptr;
  unsigned int uncaught = 0;
};

inline Exceptions& exceptions() { return *reinterpret_cast<Exceptions*>(abi::__cxa_get_globals()); }

struct Fiber {
  static constexpr Time never = Time::max();

  ucontext_t context{};
  std::vector<char> stack;
  std::function<void()> body;
  Exceptions exceptions{};
  const void* waits_for = nullptr;
  Time until = never;  ///< a wait with a time-out ends then
  long paused_to = 0;  ///< a point before which others run if they can
  bool ended = false;

  bool ready() const { return !ended && waits_for == nullptr; }
};

/// All fibers of one schedule. The first is the thread that began it.
class Scheduler {
 public:
  static constexpr long most_points = 400'000;

  void begin(std::uint64_t seed) {
    seed_ = seed;
    random_.seed(seed);
    fibers_.clear();
    fibers_.push_back(std::make_unique<Fiber>());
    current_ = fibers_.front().get();
    now_ = {};
    points_ = 0;
    time_may_pass_ = false;
    constexpr std::uint64_t stays[] = {2, 3, 4, 8, 20, 60};
    stay_ = stays[below(6)];
    pause_ = below(2) == 0 ? 50 : 100'000;
    cores_ = below(2) == 0 ? 1 : 64;
  }

  /// Time passes only if all fibers wait. Without this call that is a lost wake-up.
  void let_time_pass() { time_may_pass_ = true; }

  Time now() const { return now_; }
  long points() const { return points_; }
  unsigned cores() const { return cores_; }
  /// Fibers that have not ended.
  std::size_t running() const {
    return static_cast<std::size_t>(
        std::count_if(fibers_.begin(), fibers_.end(), [](const auto& f) { return !f->ended; }));
  }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  /// Another fiber may go on here.
  void point() {
    count();
    if (below(pause_) == 0) current_->paused_to = points_ + 300;
    if (current_->paused_to > points_ || below(stay_) == 0) run_another();
  }

  /// Returns when `waits_for` is notified, or at `until`.
  void wait(const void* waits_for, Time until = Fiber::never) {
    count();
    current_->waits_for = waits_for;
    current_->until = until;
    run_another();
  }

  /// Ends the process.
  [[noreturn]] void fail(const char* why) const {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed_), why);
    std::fflush(stdout);
    std::_Exit(1);
  }

  void notify_all(const void* what) {
    for (const auto& fiber : fibers_)
      if (fiber->waits_for == what) fiber->waits_for = nullptr;
  }

  void notify_one(const void* what) {
    std::vector<Fiber*> waiting;
    for (const auto& fiber : fibers_)
      if (fiber->waits_for == what) waiting.push_back(fiber.get());
    if (!waiting.empty()) waiting[below(waiting.size())]->waits_for = nullptr;
  }

  Fiber* start(std::function<void()> body) {
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *fibers_.back();
    fiber.body = std::move(body);
    fiber.stack.resize(128 * 1024);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    makecontext(&fiber.context, run_body, 0);
    point();
    return &fiber;
  }

 private:
  static void run_body();

  void count() {
    if (++points_ > most_points) fail("the ranks run without end");
  }

  void run_another() {
    Fiber* const next = any_ready();
    if (next == current_) return;
    Fiber* const before = std::exchange(current_, next);
    before->exceptions = std::exchange(exceptions(), next->exceptions);
    swapcontext(&before->context, &next->context);
  }

  Fiber* any_ready() {
    std::vector<Fiber*> ready = all_ready();
    if (ready.empty()) {
      pass_time();
      ready = all_ready();
    }
    return ready[below(ready.size())];
  }

  std::vector<Fiber*> all_ready() const {
    std::vector<Fiber*> ready, paused;
    for (const auto& fiber : fibers_)
      if (fiber->ready()) (fiber->paused_to > points_ ? paused : ready).push_back(fiber.get());
    return ready.empty() ? paused : ready;
  }

  void pass_time() {
    Time next = Fiber::never;
    for (const auto& fiber : fibers_)
      if (!fiber->ended) next = std::min(next, fiber->until);
    if (next == Fiber::never) fail("no rank can go on");
    if (!time_may_pass_) fail("all ranks sleep, and only the end of a time slice would wake one");
    now_ = std::max(now_, next);
    for (const auto& fiber : fibers_)
      if (!fiber->ended && fiber->until <= now_) fiber->waits_for = nullptr;
  }

  std::uint64_t seed_ = 0;
  std::minstd_rand random_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* current_ = nullptr;
  Time now_{};
  long points_ = 0;
  bool time_may_pass_ = false;
  std::uint64_t stay_ = 2;    ///< at one point of so many another fiber goes on
  std::uint64_t pause_ = 50;  ///< at one point of so many a fiber is held back for a while
  unsigned cores_ = 1;
};

inline Scheduler scheduler;

inline void Scheduler::run_body() {
  Fiber& me = *scheduler.current_;
  me.body();
  me.ended = true;
  scheduler.notify_all(&me);
  scheduler.run_another();
}

}  // namespace sim
