#pragma once
// The primitives that stand for those of the standard library in a copy of the headers.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "schedules/simulator.hpp"

namespace sim {

/// Sequentially consistent whatever order is asked for: ThreadSanitizer looks for wrong orders.
template <class T>
class atomic {
 public:
  atomic(T value) : value_(value) {}
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;

  T load(std::memory_order = std::memory_order_seq_cst) const {
    scheduler.point();
    return value_;
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    scheduler.point();
    value_ = value;
  }
  T fetch_add(T more) {
    scheduler.point();
    return std::exchange(value_, value_ + more);
  }
  T fetch_sub(T less) {
    scheduler.point();
    return std::exchange(value_, value_ - less);
  }
  bool compare_exchange_strong(T& expected, T desired) {
    scheduler.point();
    return exchange_if(value_ == expected, expected, desired);
  }
  bool compare_exchange_weak(T& expected, T desired) {
    scheduler.point();
    return exchange_if(value_ == expected && scheduler.below(8) != 0, expected, desired);
  }
  void wait(T old) const {
    scheduler.point();
    while (value_ == old) scheduler.wait(this);
  }
  void notify_all() {
    scheduler.point();
    scheduler.notify_all(this);
  }

 private:
  bool exchange_if(bool exchanges, T& expected, T desired) {
    if (exchanges)
      value_ = desired;
    else
      expected = value_;
    return exchanges;
  }

  T value_;
};

class mutex {
 public:
  void lock() {
    scheduler.point();
    take();
  }
  void unlock() {
    release();
    scheduler.point();
  }

 private:
  friend class condition_variable;

  void take() {
    while (held_) scheduler.wait(this);
    held_ = true;
  }
  void release() {
    held_ = false;
    scheduler.notify_all(this);
  }

  bool held_ = false;
};

/// One wait of 64 ends without a notification.
class condition_variable {
 public:
  void wait(std::unique_lock<mutex>& lock) { wait_until(lock, Fiber::never); }
  void wait_for(std::unique_lock<mutex>& lock, Time time) {
    wait_until(lock, scheduler.now() + time);
  }
  /// Whether holds() does so in time.
  template <class Holds>
  bool wait_for(std::unique_lock<mutex>& lock, Time time, const Holds& holds) {
    const Time until = scheduler.now() + time;
    while (!holds() && scheduler.now() < until) wait_until(lock, until);
    return holds();
  }
  void notify_one() {
    scheduler.point();
    scheduler.notify_one(this);
  }
  void notify_all() {
    scheduler.point();
    scheduler.notify_all(this);
  }

 private:
  void wait_until(std::unique_lock<mutex>& lock, Time until) {
    lock.mutex()->release();
    if (scheduler.below(64) == 0)
      scheduler.point();
    else
      scheduler.wait(this, until);
    lock.mutex()->take();
  }
};

class thread {
 public:
  thread() = default;
  template <class F>
  explicit thread(F body) : fiber_(scheduler.start(std::move(body))) {}
  template <class F, class Argument>
  thread(F body, Argument argument)
      : fiber_(scheduler.start([body, argument] { body(argument); })) {}

  void detach() {}
  bool joinable() const { return fiber_ != nullptr; }
  void join() {
    while (!fiber_->ended) scheduler.wait(fiber_);
  }
  static unsigned hardware_concurrency() { return scheduler.cores(); }

 private:
  Fiber* fiber_ = nullptr;
};

namespace this_thread {
inline void yield() { scheduler.point(); }
inline void sleep_for(Time time) {
  const char nobody_notifies = 0;
  scheduler.wait(&nobody_notifies, scheduler.now() + time);
}
}  // namespace this_thread

struct steady_clock {
  using duration = Time;
  using time_point = std::chrono::time_point<steady_clock, duration>;
  static time_point now() { return time_point(scheduler.now()); }
};

/// Lines about long waits are not printed: thousands of schedules have one.
template <class... Values>
void fprintf(std::FILE*, const char*, const Values&...) {}

/// In place of std::_Exit. Ranks call it when one of them never comes back, which a program here
/// asks of none.
[[noreturn]] inline void end_process(int) { scheduler.fail("a rank is given up for lost"); }

}  // namespace sim
