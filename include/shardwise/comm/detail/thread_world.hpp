#pragma once
// How ranks that are threads wait for each other: they spin, then sleep, and detect when a wait
// cannot end, or lasts too long.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

#include "shardwise/comm/detail/patience.hpp"
#include "shardwise/comm/detail/rank_progress.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/fixed_list.hpp"
#include "shardwise/core/growing_list.hpp"

namespace shardwise::detail {

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
  ThreadWorld(int ranks, Patience::Duration timeout);

  /// Whether a rank has thrown, or a wait cannot end or was too long: no new call may begin.
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// Returns when the wait is done. Throws if it cannot end.
  void wait(int rank, const Wait& wait) {
    if (!spin(wait)) sleep(rank, wait);
  }

  /// To be called after progress for which others may wait.
  void wake() {
    if (sleepers_.load() != 0) wake_sleepers();
  }

  /// A rank has returned, as its own thread tells: the waits of ranks that need it fail.
  void leave(int rank) noexcept;

  /// A rank has thrown: the waits of all ranks fail.
  void abort(int rank, const char* reason) noexcept;

  /// A rank has thrown in a call of a RankGroup: only the waits of ranks that need it fail.
  void drop_out(int rank, const char* reason) noexcept;

  /// All ranks, which have ended, begin again.
  void come_back() noexcept;

  /// Whether a wait of a rank has failed since all came back, even if the rank passed over it.
  bool has_failed() const { return has_failed_.load(std::memory_order_relaxed); }

  ///@{
  /// Whether a rank has sent a message since all came back.
  bool has_sent() const { return has_sent_.load(std::memory_order_relaxed); }
  void note_sent() {
    if (!has_sent()) has_sent_.store(true, std::memory_order_relaxed);
  }
  ///@}

  /// Throws the reason why a wait failed, or why a call cannot begin.
  [[noreturn]] void fail(const Wait& wait);

  /// For the thread that started the ranks: returns when all have ended. After a rank has thrown,
  /// or when calls may no longer begin, ranks that do not come back have as long as the time-out. A
  /// thread cannot be ended, so after that the process ends, with `lost_rank_exit_code`.
  void wait_for_end();

  static constexpr int lost_rank_exit_code = 70;

 private:
  struct Rank {
    const Wait* asleep_in = nullptr;
    bool warned = false;  // of this wait
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
    for (std::size_t i = 0; i < wait.needed.size(); ++i)
      while (wait.progress[i].value.load(std::memory_order_acquire) < wait.target) {
        if (++tried > tries) return false;
        if (oversubscribed_)
          std::this_thread::yield();
        else if (tried > eager)
          pause();
      }
    return true;
  }

  void wake_sleepers();
  void sleep(int rank, const Wait& wait);
  bool cannot_finish(const Wait& wait) const;

  /// Whether every rank that has not ended sleeps in a wait that is not done.
  bool deadlocked() const;
  [[gnu::cold]] void declare_deadlock();

  /// One line for all ranks that wait now; after the time-out, the waits of all ranks fail.
  [[gnu::cold]] void report_long_wait(Patience::Event event, int rank, const Wait& wait);

  /// What each rank does: "rank 0 waits in barrier(), collective 3 of ranks 0, 1; rank 1 ..."
  [[gnu::cold]] std::string all_states() const;

  [[gnu::cold]] void abort_all(std::string reason);
  [[gnu::cold]] void mark_gone(int rank, const char* how, const char* reason);
  bool all_gone() const;

  /// "rank 1 has not ended within 60 s after this: rank 0 threw: ..."
  [[gnu::cold]] std::string lost_text(Patience::Duration time) const;

  /// What `text` returns, or nothing if there is no memory for it: a rank must be able to end.
  template <class Text>
  static std::string text_or_empty(Text text) noexcept try {
    return text();
  } catch (...) {
    return {};
  }

  [[noreturn, gnu::cold]] void throw_failure(const Wait& wait);
  void notify_all();

  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> has_sent_{false};
  std::atomic<bool> has_failed_{false};
  alignas(64) std::mutex mutex_;
  Patience::Duration timeout_;
  std::condition_variable ended_;  // a rank has ended, or calls may no longer begin
  FixedList<Rank> ranks_;
  std::string reason_;  // why ranks end, if not at their end
  bool deadlock_ = false;
  bool oversubscribed_;
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

#include <cstdlib>
#include <utility>

#include "shardwise/core/error.hpp"

namespace shardwise::detail {

SHARDWISE_INLINE ThreadWorld::ThreadWorld(int ranks, Patience::Duration timeout)
    : timeout_(timeout),
      ranks_(static_cast<std::size_t>(ranks)),
      oversubscribed_(static_cast<unsigned>(ranks) > std::thread::hardware_concurrency()) {}

SHARDWISE_INLINE void ThreadWorld::leave(int rank) noexcept {
  const std::string step = text_or_empty([] {
    return last_step == 0 ? std::string() : sentence({" after step ", last_step});
  });
  std::unique_lock lock(mutex_);
  mark_gone(rank, "has returned", step.c_str());
}

SHARDWISE_INLINE void ThreadWorld::abort(int rank, const char* reason) noexcept {
  std::unique_lock lock(mutex_);
  mark_gone(rank, "threw: ", reason);
  if (aborted()) return;
  abort_all(text_or_empty([&] {
    return sentence({"rank ", rank, " ", ranks_[static_cast<std::size_t>(rank)].how});
  }));
}

SHARDWISE_INLINE void ThreadWorld::drop_out(int rank, const char* reason) noexcept {
  std::unique_lock lock(mutex_);
  mark_gone(rank, "threw: ", reason);
  if (!reason_.empty()) return;
  reason_ = text_or_empty([&] {
    return sentence({"rank ", rank, " ", ranks_[static_cast<std::size_t>(rank)].how});
  });
}

SHARDWISE_INLINE void ThreadWorld::come_back() noexcept {
  std::unique_lock lock(mutex_);
  for (Rank& rank : ranks_) rank.gone = false;
  reason_.clear();
  has_sent_.store(false, std::memory_order_relaxed);
  has_failed_.store(false, std::memory_order_relaxed);
}

SHARDWISE_INLINE void ThreadWorld::fail(const Wait& wait) {
  std::unique_lock lock(mutex_);
  throw_failure(wait);
}

SHARDWISE_INLINE void ThreadWorld::wait_for_end() {
  std::unique_lock lock(mutex_);
  while (!all_gone() && !aborted() && reason_.empty()) ended_.wait(lock);
  Patience patience(timeout_, Patience::Clock::now());
  while (!all_gone()) {
    ended_.wait_for(lock, Patience::slice);
    const Patience::Event event = patience.poll(Patience::Clock::now());
    if (event == Patience::Event::none || all_gone()) continue;
    const bool ends = event == Patience::Event::timeout;
    print_warning(text_or_empty([&] {
      return ends ? sentence({lost_text(timeout_),
                              "; a thread cannot be ended, so the process ends with exit code ",
                              lost_rank_exit_code})
                  : lost_text(Patience::warning_after(timeout_));
    }));
    if (ends) std::_Exit(lost_rank_exit_code);
  }
}

SHARDWISE_INLINE void ThreadWorld::wake_sleepers() {
  std::unique_lock lock(mutex_);
  for (Rank& rank : ranks_)
    if (rank.asleep_in != nullptr && rank.asleep_in->done()) rank.wake.notify_one();
}

SHARDWISE_INLINE void ThreadWorld::sleep(int rank, const Wait& wait) {
  Rank& me = ranks_[static_cast<std::size_t>(rank)];
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1);
  me.asleep_in = &wait;
  me.warned = false;
  Patience patience(timeout_, Patience::Clock::now());
  bool failed = false;
  // Counted as a sleeper before the wait is checked: the rank that completes it sees the count.
  while (!wait.done()) {
    if (cannot_finish(wait)) {
      failed = wait.give_up();
      break;
    }
    if (deadlocked()) {
      declare_deadlock();
      continue;
    }
    me.wake.wait_for(lock, Patience::slice);
    const Patience::Event event = patience.poll(Patience::Clock::now());
    if (event != Patience::Event::none) report_long_wait(event, rank, wait);
  }
  me.asleep_in = nullptr;
  sleepers_.fetch_sub(1);
  if (failed) throw_failure(wait);
}

SHARDWISE_INLINE bool ThreadWorld::cannot_finish(const Wait& wait) const {
  if (!wait.can_fail) return false;
  if (aborted()) return true;
  for (const int rank : wait.needed)
    if (ranks_[static_cast<std::size_t>(rank)].gone) return true;
  return false;
}

SHARDWISE_INLINE bool ThreadWorld::deadlocked() const {
  for (const Rank& rank : ranks_) {
    if (rank.gone) continue;
    if (rank.asleep_in == nullptr || rank.asleep_in->done() || cannot_finish(*rank.asleep_in))
      return false;
  }
  return true;
}

SHARDWISE_INLINE void ThreadWorld::declare_deadlock() {
  deadlock_ = true;
  abort_all(text_or_empty([&] {
    return sentence({"no rank can go on, each waits for another: ", all_states()});
  }));
}

SHARDWISE_INLINE void ThreadWorld::report_long_wait(Patience::Event event, int rank,
                                                    const Wait& wait) {
  const bool too_long = event == Patience::Event::timeout;
  if (too_long ? aborted() : ranks_[static_cast<std::size_t>(rank)].warned) return;
  const Patience::Duration time = too_long ? timeout_ : Patience::warning_after(timeout_);
  const std::string text = text_or_empty([&] {
    return sentence({waited_text(rank, time, wait.missing()), ": ", all_states()});
  });
  if (wait.done()) return;  // and then the text may name no rank
  if (too_long) return abort_all(text_or_empty([&] { return sentence({text, timeout_advice}); }));
  for (Rank& other : ranks_) other.warned = true;
  print_warning(text);
}

SHARDWISE_INLINE std::string ThreadWorld::all_states() const {
  std::string all;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = ranks_[r];
    append(all, {r == 0 ? "rank " : "; rank ", r, " "});
    if (rank.gone)
      all += rank.how;
    else if (rank.asleep_in != nullptr)
      append(all, {"waits in ", rank.asleep_in->place.describe()});
    else
      all += "waits for no rank";
  }
  return all;
}

SHARDWISE_INLINE void ThreadWorld::abort_all(std::string reason) {
  reason_ = std::move(reason);
  aborted_.store(true, std::memory_order_release);
  notify_all();
}

SHARDWISE_INLINE void ThreadWorld::mark_gone(int rank, const char* how, const char* reason) {
  Rank& me = ranks_[static_cast<std::size_t>(rank)];
  me.gone = true;
  me.how = text_or_empty([&] { return sentence({how, reason}); });
  notify_all();
}

SHARDWISE_INLINE bool ThreadWorld::all_gone() const {
  for (const Rank& rank : ranks_)
    if (!rank.gone) return false;
  return true;
}

SHARDWISE_INLINE std::string ThreadWorld::lost_text(Patience::Duration time) const {
  GrowingList<int> lost;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (!ranks_[r].gone) lost.add(static_cast<int>(r));
  return sentence({ranks_text(lost), lost.size() == 1 ? " has" : " have", " not ended within ",
                   duration_text(time), " after this: ", reason_});
}

SHARDWISE_INLINE void ThreadWorld::throw_failure(const Wait& wait) {
  has_failed_.store(true, std::memory_order_relaxed);
  const std::string where = sentence({"in ", wait.place.describe(), ": "});
  if (deadlock_) throw collective_error({where, reason_});
  for (const int rank : wait.needed) {
    const Rank& peer = ranks_[static_cast<std::size_t>(rank)];
    if (peer.gone && !aborted()) throw peer_error({where, "rank ", rank, " ", peer.how});
  }
  throw peer_error({where, reason_});
}

SHARDWISE_INLINE void ThreadWorld::notify_all() {
  for (Rank& rank : ranks_)
    if (rank.asleep_in != nullptr) rank.wake.notify_one();
  ended_.notify_one();
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
