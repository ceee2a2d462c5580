#pragma once
// A thread that polls objects which may fail or hang, and aborts them. No other thread waits for
// it.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// The result of poll() of a watched object.
enum class WatchStatus { active, failed, finished };

/// Polls all watched objects about once in every `period`, from one thread. The type Watched has
///
///     WatchStatus poll(time_point now)    `failed` once, when it has to be aborted;
///                                         `finished` when it is no longer needed
///     std::string reason() const          why it failed
///     void fail(const std::string& why)   another watched object has failed, and so this one fails
///     static void abort(std::span<const std::unique_ptr<Watched>> all)   aborts all together
///
/// None of these may throw. Watched objects belong to the thread, and only the thread destroys
/// them. So work that takes long, or never ends, delays no other thread. The thread runs while
/// there are watched objects.
template <class Watched>
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Watchdog(std::chrono::milliseconds period) : shared_(std::make_shared<Shared>(period)) {}

  /// A watched object, with a number that no other one has: a later one may have its address.
  struct Entry {
    Watched* watched = nullptr;
    std::uint64_t number = 0;  ///< from 1 on
  };

  /// `watched` exists until its poll() returns `finished`.
  /// throws  memory_error if no thread can be started
  Entry add(std::unique_ptr<Watched> watched) {
    const std::lock_guard lock(shared_->mutex);
    shared_->present.reserve(shared_->present.size() + 1);
    shared_->added.reserve(shared_->added.size() + 1);
    if (!shared_->is_running) {
      try {
        std::thread(&Watchdog::run, shared_).detach();
      } catch (const std::system_error& e) {
        throw memory_error({"watchdog: the system could not start its thread: ", e.what()});
      }
    }
    shared_->is_running = true;
    const Entry entry{watched.get(), ++shared_->last};
    shared_->present.push_back(entry);
    shared_->added.push_back(std::move(watched));
    return entry;
  }

  /// Makes the thread poll at once.
  void wake() const {
    const std::lock_guard lock(shared_->mutex);
    shared_->wake_requested = true;
    shared_->changed.notify_all();
  }

  /// Waits, and returns whether the object with this number was finished within that time. It may
  /// be destroyed already.
  bool wait_until_finished(std::uint64_t number, std::chrono::milliseconds time) const {
    std::unique_lock lock(shared_->mutex);
    return shared_->changed.wait_for(lock, time, [&] {
      return std::none_of(shared_->present.begin(), shared_->present.end(),
                          [=](const Entry& entry) { return entry.number == number; });
    });
  }

  /// Whether a watched object has failed, and so all that existed then.
  bool has_failed() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->has_failed;
  }

 private:
  struct Shared {
    explicit Shared(std::chrono::milliseconds time) : period(time) {}

    const std::chrono::milliseconds period;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::unique_ptr<Watched>> added;  ///< those that the thread has not taken yet
    std::vector<Entry> present;                   ///< all of them
    std::uint64_t last = 0;                       ///< the number of the one added last
    bool is_running = false;
    bool wake_requested = false;
    bool has_failed = false;
  };

  static void run(const std::shared_ptr<Shared> shared) noexcept {
    std::vector<std::unique_ptr<Watched>> all;
    while (take_added(*shared, all)) {
      poll_all(*shared, all);
      std::unique_lock lock(shared->mutex);
      shared->changed.wait_for(lock, shared->period, [&] { return shared->wake_requested; });
      shared->wake_requested = false;
    }
  }

  /// False if there is nothing to poll: then the thread ends.
  static bool take_added(Shared& shared, std::vector<std::unique_ptr<Watched>>& all) {
    const std::lock_guard lock(shared.mutex);
    for (std::unique_ptr<Watched>& watched : shared.added) all.push_back(std::move(watched));
    shared.added.clear();
    shared.is_running = !all.empty();
    return shared.is_running;
  }

  static void poll_all(Shared& shared, std::vector<std::unique_ptr<Watched>>& all) {
    std::string why;
    bool one_failed = false;
    for (std::unique_ptr<Watched>& watched : all) {
      const WatchStatus status = watched->poll(Clock::now());
      if (status == WatchStatus::failed && !std::exchange(one_failed, true))
        why = watched->reason();
      if (status == WatchStatus::finished) destroy(shared, watched);
    }
    std::erase(all, nullptr);
    if (!one_failed) return;
    record_failure(shared);
    for (const std::unique_ptr<Watched>& watched : all) watched->fail(why);
    Watched::abort(all);
  }

  static void record_failure(Shared& shared) {
    const std::lock_guard lock(shared.mutex);
    shared.has_failed = true;
  }

  static void destroy(Shared& shared, std::unique_ptr<Watched>& watched) {
    const std::uint64_t number = number_of(shared, *watched);
    watched.reset();
    const std::lock_guard lock(shared.mutex);
    std::erase_if(shared.present, [=](const Entry& entry) { return entry.number == number; });
    shared.changed.notify_all();
  }

  /// Of an object that is not destroyed.
  static std::uint64_t number_of(Shared& shared, const Watched& watched) {
    const std::lock_guard lock(shared.mutex);
    return std::find_if(shared.present.begin(), shared.present.end(),
                        [&](const Entry& entry) { return entry.watched == &watched; })
        ->number;
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace shardwise::detail
