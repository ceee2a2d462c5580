#pragma once
// Runs a function on P ranks that are threads of this process.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "shardwise/comm/detail/patience.hpp"
#include "shardwise/comm/detail/rank_function.hpp"
#include "shardwise/comm/detail/thread_group.hpp"
#include "shardwise/comm/detail/thread_world.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/comm/timeout.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/fixed_list.hpp"

namespace shardwise {

/// Options of ranks that are threads.
struct ThreadOptions {
  /// How long a rank waits for others before it gets a peer_error, and how long run_ranks waits
  /// after an error for ranks that do not end; 0 is without end.
  std::chrono::milliseconds timeout = detail::default_timeout();
};

namespace detail {

/// The exception that run_ranks throws: the first one that is not caused by that of another rank.
class Failure {
 public:
  /// Call it in a catch block, before the other ranks are told.
  void record(int rank) noexcept;

  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

  /// The ranks whose exception is not caused by that of another one.
  int causes() const { return causes_; }

 private:
  void keep(bool consequence) noexcept;

  std::mutex mutex_;
  std::exception_ptr exception_;
  bool consequence_ = false;
  int causes_ = 0;
};

/// The group of all ranks. Each pair of ranks has a mailbox in each direction.
std::shared_ptr<ThreadGroup> make_group(int ranks, Patience::Duration timeout);

[[noreturn]] void fail_without_memory(const char* who, int ranks);

/// A caller's function without its type, so that the code below is compiled once for all types.
struct RankProgram {
  void* function;
  void (*call)(void* function, ThreadCommunicator&);
};

/// One program that all ranks of a group run.
struct RankRun {
  ThreadWorld& world;
  RankProgram program;
  /// What the others learn of a rank that throws.
  void (ThreadWorld::*tell)(int, const char*) noexcept = &ThreadWorld::abort;
  Failure failure{};

  /// On the thread of this rank.
  void run(ThreadCommunicator& communicator) noexcept;
};

/// A caller's function as such a program; it must outlive it.
template <class F>
RankProgram program_of(F& f) {
  return {&f, [](void* function, ThreadCommunicator& communicator) {
            (*static_cast<F*>(function))(communicator);
          }};
}

/// Threads of which either all begin or none. The destructor joins them.
class RankThreads {
 public:
  explicit RankThreads(int ranks) : threads_(static_cast<std::size_t>(ranks)) {}
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads();

  /// Calls run(rank) on each; `run` must outlive them.
  template <class Run>
  void start(Run& run) {
    const int ranks = static_cast<int>(threads_.size());
    for (int rank = 0; rank < ranks; ++rank) {
      try {
        threads_[static_cast<std::size_t>(rank)] = std::thread([this, &run, rank] {
          state_.wait(State::undecided);
          if (state_.load() == State::running) run(rank);
        });
      } catch (const std::exception& e) {
        throw rank_error(rank, std::current_exception(),
                         sentence({"the system could not start its thread: ", e.what(),
                                   "; run fewer ranks than ", ranks}));
      }
    }
    decide(State::running);
  }

 private:
  enum class State { undecided, running, cancelled };

  void decide(State state);

  std::atomic<State> state_{State::undecided};
  FixedList<std::thread> threads_;
};

void require_ranks(const char* who, int ranks);

void run_rank_threads(int ranks, RankProgram program, ThreadOptions options);

}  // namespace detail

/// Calls f(ThreadCommunicator&) on `ranks` threads, one for each rank, and returns when all have
/// ended. All ranks share the one f. The calling thread only waits.
///
/// If ranks throw, all threads are ended and joined first. Then the first exception that is not
/// only a peer_error is thrown: errors of this library with their type, "rank 2: " in front of
/// the message; any other as a rank_error that holds it.
///
/// A rank that waits longer than the time-out gets a peer_error, which names the ranks that do not
/// come and says what each rank does; after a tenth of that time, and at most a minute, a line on
/// standard error says the same. Ranks that do not end within the time-out after an error, because
/// they never come back, are named there too, and the process ends with exit code 70: a thread
/// cannot be ended.
///
/// throws  argument_error if ranks < 1, memory_error if there is no memory for their buffers,
///         rank_error if a thread cannot be started
template <class F>
void run_ranks(int ranks, F f, ThreadOptions options = {}) {
  static_assert(detail::must_take_rank<F, ThreadCommunicator>());
  detail::run_rank_threads(ranks, detail::program_of(f), options);
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include <new>
#include <stdexcept>
#include <vector>

#include "shardwise/comm/detail/rank_failure.hpp"

namespace shardwise::detail {

SHARDWISE_INLINE void Failure::record(int rank) noexcept {
  try {
    rethrow_with_rank(rank);
  } catch (const peer_error&) {
    keep(true);
  } catch (...) {
    keep(false);
  }
}

SHARDWISE_INLINE void Failure::keep(bool consequence) noexcept {
  std::unique_lock lock(mutex_);
  if (!consequence) ++causes_;
  if (exception_ && (consequence || !consequence_)) return;
  exception_ = std::current_exception();
  consequence_ = consequence;
}

SHARDWISE_INLINE std::shared_ptr<ThreadGroup> make_group(int ranks, Patience::Duration timeout) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) all[static_cast<std::size_t>(rank)] = rank;
  return std::make_shared<ThreadGroup>(std::make_shared<ThreadWorld>(ranks, timeout),
                                       std::move(all));
}

SHARDWISE_INLINE void fail_without_memory(const char* who, int ranks) {
  throw memory_error({who, ": no memory for the buffers of ", ranks, " ranks; run fewer"});
}

SHARDWISE_INLINE void RankRun::run(ThreadCommunicator& communicator) noexcept {
  const int rank = communicator.rank();
  bool threw = false;
  std::string why;  // told when this thread no longer holds the exception
  try {
    program.call(program.function, communicator);
  } catch (...) {
    threw = true;
    why = reason();
    failure.record(rank);
  }
  threw ? (world.*tell)(rank, why.c_str()) : world.leave(rank);
}

SHARDWISE_INLINE RankThreads::~RankThreads() {
  decide(State::cancelled);
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

SHARDWISE_INLINE void RankThreads::decide(State state) {
  State undecided = State::undecided;
  state_.compare_exchange_strong(undecided, state);
  state_.notify_all();
}

SHARDWISE_INLINE void require_ranks(const char* who, int ranks) {
  if (ranks < 1)
    throw argument_error({who, ": ", ranks, " ranks were asked for; at least one is needed"});
}

SHARDWISE_INLINE void run_rank_threads(int ranks, RankProgram program, ThreadOptions options) try {
  require_ranks("run_ranks", ranks);
  const std::shared_ptr<ThreadGroup> group = make_group(ranks, options.timeout);
  RankRun run{*group->world(), program};
  const auto run_rank = [&](int rank) {
    ThreadCommunicator communicator(group, rank);
    run.run(communicator);
  };
  {
    RankThreads threads(ranks);
    threads.start(run_rank);
    group->world()->wait_for_end();
  }
  run.failure.rethrow();
} catch (const std::bad_alloc&) {
  fail_without_memory("run_ranks", ranks);
} catch (const std::length_error&) {
  fail_without_memory("run_ranks", ranks);
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
