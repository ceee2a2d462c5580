#pragma once
// How ranks that are threads wait for each other: they spin, then sleep, and detect when a wait
// cannot end.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/call_record.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// The data that a rank publishes of its call in a collective.
struct Publication {
  CallRecord record{};
  const void* data = nullptr;  ///< null if it was copied
  void* out = nullptr;         ///< memory that peers may write to

  bool copied() const { return data == nullptr; }
};

/// The progress of one rank. `value` grows by `stride`; a peer that stops waiting for the next step
/// sets the lowest bit, and then that step never happens. The call is in the same cache line, so
/// that a peer gets both at once.
struct alignas(64) Progress {
  static constexpr std::uint64_t stride = 2;
  static constexpr std::uint64_t given_up = 1;

  std::atomic<std::uint64_t> value{0};
  Publication publication{};

  void advance() { value.fetch_add(stride); }

  /// One step, unless a peer has stopped waiting for it.
  bool advance_from(std::uint64_t before) {
    return value.compare_exchange_strong(before, before + stride);
  }
};

static_assert(sizeof(Progress) == 64);

/// A wait of a rank, until each of `progress` reaches `target`.
struct Wait {
  std::span<Progress> progress;
  std::uint64_t target;
  const Call* call;
  std::uint64_t number;         ///< of the collective in its group, from 1; 0 for a message
  std::span<const int> group;   ///< world ranks that take part
  std::span<const int> needed;  ///< world ranks of which none may end before
  bool can_fail = true;

  bool done() const {
    for (const Progress& one : progress)
      if (one.value.load() < target) return false;
    return true;
  }

  /// Stops one rank that has not reached the target, so that no rank ever finds this wait done.
  /// Returns false if all ranks have reached it: then it is done for all of them.
  bool give_up() const {
    for (Progress& one : progress) {
      std::uint64_t seen = one.value.load();
      while (seen < target) {
        const bool stopped = (seen & Progress::given_up) != 0;
        if (stopped || one.value.compare_exchange_weak(seen, seen | Progress::given_up))
          return true;
      }
    }
    return false;
  }

  /// For example "barrier(), collective 3 of ranks 0, 2".
  std::string describe() const {
    if (number == 0) return to_string(*call);
    std::string text = sentence({*call, ", collective ", number, " of ranks "});
    for (std::size_t i = 0; i < group.size(); ++i) text += sentence({i == 0 ? "" : ", ", group[i]});
    return text;
  }
};

inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The ranks that one run_ranks started. Everything slow (to sleep, to end, to describe an error)
/// holds one mutex. A rank that does not sleep only reads two atomics, which no other rank writes.
class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks)
      : ranks_(static_cast<std::size_t>(ranks)),
        oversubscribed_(static_cast<unsigned>(ranks) > std::thread::hardware_concurrency()) {}

  /// Whether a rank has thrown, or there is a deadlock: no new call may begin.
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// Returns when the wait is done. Throws if it cannot end.
  void wait(int rank, const Wait& wait) {
    if (!spin(wait)) sleep(ranks_[static_cast<std::size_t>(rank)], wait);
  }

  /// To be called after progress for which others may wait.
  void wake() {
    if (sleepers_.load() == 0) return;
    std::unique_lock lock(mutex_);
    for (Rank& rank : ranks_)
      if (rank.asleep_in != nullptr && rank.asleep_in->done()) rank.wake.notify_one();
  }

  /// A rank has returned: the waits of ranks that need it fail.
  void leave(int rank) noexcept {
    std::unique_lock lock(mutex_);
    mark_gone(rank, "has returned", "");
  }

  /// A rank has thrown: the waits of all ranks fail.
  void abort(int rank, const char* reason) noexcept {
    std::unique_lock lock(mutex_);
    mark_gone(rank, "threw: ", reason);
    if (aborted()) return;
    reason_ = text_or_empty([&] {
      return sentence({"rank ", rank, " ", ranks_[static_cast<std::size_t>(rank)].how});
    });
    aborted_.store(true, std::memory_order_release);
  }

  /// Throws the reason why a wait failed, or why a call cannot begin.
  [[noreturn]] void fail(const Wait& wait) {
    std::unique_lock lock(mutex_);
    throw_failure(wait);
  }

 private:
  struct Rank {
    const Wait* asleep_in = nullptr;
    bool gone = false;
    std::string how;
    std::condition_variable wake;
  };

  /// Polls for some hundred nanoseconds without a pause, because peers mostly arrive at once, then
  /// for some ten microseconds with pauses. With more ranks than cores it yields the core instead.
  bool spin(const Wait& wait) const {
    constexpr int eager = 200;
    const int tries = oversubscribed_ ? 20 : 2000;
    int tried = 0;
    for (const Progress& one : wait.progress)
      while (one.value.load(std::memory_order_acquire) < wait.target) {
        if (++tried > tries) return false;
        if (oversubscribed_)
          std::this_thread::yield();
        else if (tried > eager)
          pause();
      }
    return true;
  }

  void sleep(Rank& me, const Wait& wait) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    me.asleep_in = &wait;
    bool failed = false;
    // Counted as a sleeper before the wait is checked: the rank that completes it sees the count.
    while (!wait.done()) {
      if (cannot_finish(wait)) {
        failed = wait.give_up();
        break;
      }
      if (deadlocked())
        declare_deadlock();
      else
        me.wake.wait(lock);
    }
    me.asleep_in = nullptr;
    sleepers_.fetch_sub(1);
    if (failed) throw_failure(wait);
  }

  bool cannot_finish(const Wait& wait) const {
    if (!wait.can_fail) return false;
    if (aborted()) return true;
    for (const int rank : wait.needed)
      if (ranks_[static_cast<std::size_t>(rank)].gone) return true;
    return false;
  }

  /// Whether every rank that has not ended sleeps in a wait that is not done.
  bool deadlocked() const {
    for (const Rank& rank : ranks_) {
      if (rank.gone) continue;
      if (rank.asleep_in == nullptr || rank.asleep_in->done() || cannot_finish(*rank.asleep_in))
        return false;
    }
    return true;
  }

  void declare_deadlock() {
    reason_ = text_or_empty([&] {
      std::string all = "no rank can go on, each waits for another: ";
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const Rank& rank = ranks_[r];
        all += sentence({r == 0 ? "rank " : "; rank ", r, " "});
        all += rank.gone ? rank.how : sentence({"waits in ", rank.asleep_in->describe()});
      }
      return all;
    });
    deadlock_ = true;
    aborted_.store(true, std::memory_order_release);
    notify_all();
  }

  void mark_gone(int rank, const char* how, const char* reason) {
    Rank& me = ranks_[static_cast<std::size_t>(rank)];
    me.gone = true;
    me.how = text_or_empty([&] { return sentence({how, reason}); });
    notify_all();
  }

  /// What `text` returns, or nothing if there is no memory for it: a rank must be able to end.
  template <class Text>
  static std::string text_or_empty(Text text) noexcept try {
    return text();
  } catch (...) {
    return {};
  }

  [[noreturn]] void throw_failure(const Wait& wait) const {
    const std::string where = sentence({"in ", wait.describe(), ": "});
    if (deadlock_) throw collective_error({where, reason_});
    for (const int rank : wait.needed) {
      const Rank& peer = ranks_[static_cast<std::size_t>(rank)];
      if (peer.gone && !aborted()) throw peer_error({where, "rank ", rank, " ", peer.how});
    }
    throw peer_error({where, reason_});
  }

  void notify_all() {
    for (Rank& rank : ranks_)
      if (rank.asleep_in != nullptr) rank.wake.notify_one();
  }

  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> aborted_{false};
  alignas(64) std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::string reason_;
  bool deadlock_ = false;
  bool oversubscribed_;
};

}  // namespace shardwise::detail
