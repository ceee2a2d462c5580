#pragma once
// Ranks that are kept: threads of a program ask them, whenever they like.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/comm/detail/rank_function.hpp"
#include "shardwise/comm/detail/thread_group.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/fixed_list.hpp"

namespace shardwise {

namespace detail {

/// Ranks that run one program after the other. Between programs they sleep, without a time-out.
class KeptRanks {
 public:
  KeptRanks(int ranks, ThreadOptions options);
  KeptRanks(const KeptRanks&) = delete;
  KeptRanks& operator=(const KeptRanks&) = delete;
  ~KeptRanks();

  int size() const { return group_->size(); }

  /// Runs a program on all ranks. Calls of several threads take turns.
  void call(RankProgram program);

 private:
  /// Runs what is posted, on the thread of this rank.
  struct Serve {
    KeptRanks& ranks;
    void operator()(int rank) const noexcept;
  };

  static std::shared_ptr<ThreadGroup> group_of(int ranks, ThreadOptions options);

  /// Gives all ranks their next program; null is the end.
  void post(RankRun* run);

  RankRun* posted(std::uint64_t number);

  inline static thread_local const ThreadGroup* group_of_thread = nullptr;

  std::shared_ptr<ThreadGroup> group_;
  FixedList<std::optional<ThreadCommunicator>> communicators_;
  std::mutex turn_;  // is held for a call
  std::string why_ended_;
  std::mutex mutex_;  // of the two below
  std::condition_variable has_posted_;
  RankRun* run_ = nullptr;
  std::uint64_t number_ = 0;  // of programs that were posted
  Serve serve_{*this};
  std::optional<RankThreads> threads_;
};

}  // namespace detail

/// Ranks that are threads and stay, each with a State of its own, such as a Model. Threads of the
/// program call them from outside:
///
///     RankGroup group(4, [](ThreadCommunicator& ranks) { return Net(ranks, Seed{1}); });
///     const std::vector<float> answer = group.call([&](Net& net) {
///       const auto y = net.evaluate(x).span();
///       return std::vector<float>(y.begin(), y.end());
///     });
///
/// Between two calls the ranks sleep, without a time-out. The destructor ends them; no call may run
/// then.
template <class State>
class RankGroup {
 public:
  /// Starts `ranks` threads, and makes each rank's State by make(ThreadCommunicator&), on its
  /// thread; the communicator lives as long as the group. A State need not be movable.
  /// throws   as run_ranks; no rank is then left
  template <class Make>
  RankGroup(int ranks, Make make, ThreadOptions options = {})
      : ranks_(ranks, options), states_(static_cast<std::size_t>(ranks)) {
    static_assert(detail::must_take_rank<Make, ThreadCommunicator>());
    auto begin = [&](ThreadCommunicator& rank) { state_of(rank).emplace(make, rank); };
    ranks_.call(detail::program_of(begin));
  }

  /// The number of ranks.
  int size() const { return ranks_.size(); }

  /// Calls f(State&) on every rank, all of which share the one f, and returns when all have ended:
  /// what f returned on rank 0. Return numbers of your own, and no view of the State, which the
  /// next call changes. Any thread may call but the group's own; several take turns.
  ///
  /// If ranks throw, the first exception is thrown here, as run_ranks says. If every rank threw for
  /// a reason of its own (an input that all refused), none had sent a message, and no call of
  /// theirs had failed while it waited, the group serves the next call, with States as f left them.
  /// Otherwise the ranks may be out of step, and each later call is a peer_error that says why.
  /// throws   as run_ranks; argument_error on a thread of the group
  template <class F>
  auto call(F f) {
    static_assert(std::is_invocable_v<F&, State&>,
                  "each rank calls f(State&), where State is what the function that was given to "
                  "the RankGroup returns: give [](State& state) { ... }.");
    using Result = std::decay_t<std::invoke_result_t<F&, State&>>;
    if constexpr (std::is_void_v<Result>) {
      auto run = [&](ThreadCommunicator& rank) { f(state_of(rank)->state); };
      ranks_.call(detail::program_of(run));
    } else {
      std::optional<Result> result;
      auto run = [&](ThreadCommunicator& rank) {
        Result mine = f(state_of(rank)->state);
        if (rank.rank() == 0) result.emplace(std::move(mine));
      };
      ranks_.call(detail::program_of(run));
      return std::move(*result);
    }
  }

 private:
  struct OfRank {
    template <class Make>
    OfRank(Make& make, ThreadCommunicator& rank) : state(make(rank)) {}
    State state;
  };

  std::optional<OfRank>& state_of(const ThreadCommunicator& rank) {
    return states_[static_cast<std::size_t>(rank.rank())];
  }

  detail::KeptRanks ranks_;
  detail::FixedList<std::optional<OfRank>> states_;
};

/// Deduces the State that `make` returns.
template <class Make>
RankGroup(int, Make, ThreadOptions = {})
    -> RankGroup<std::invoke_result_t<Make&, ThreadCommunicator&>>;

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include <new>
#include <stdexcept>

#include "shardwise/comm/detail/rank_failure.hpp"
#include "shardwise/comm/mark.hpp"

namespace shardwise::detail {

SHARDWISE_INLINE KeptRanks::KeptRanks(int ranks, ThreadOptions options)
    : group_(group_of(ranks, options)), communicators_(static_cast<std::size_t>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank)
    communicators_[static_cast<std::size_t>(rank)].emplace(group_, rank);
  threads_.emplace(ranks);
  threads_->start(serve_);
}

SHARDWISE_INLINE KeptRanks::~KeptRanks() {
  post(nullptr);
  threads_.reset();
}

SHARDWISE_INLINE void KeptRanks::call(RankProgram program) {
  if (group_of_thread == group_.get())
    throw argument_error(
        "RankGroup: a rank calls its own group, which would wait for itself; let the rank do the "
        "work in place of the call");
  const std::scoped_lock turn(turn_);
  ThreadWorld& world = *group_->world();
  if (!why_ended_.empty())
    throw peer_error(
        {"RankGroup: its ranks were out of step after an earlier call and make no "
         "other one: ",
         why_ended_, ". Make a new group"});
  world.come_back();
  RankRun run{world, program, &ThreadWorld::drop_out};
  post(&run);
  world.wait_for_end();
  if (world.has_failed()) why_ended_ = "a rank passed over the error of a call that failed";
  try {
    run.failure.rethrow();
  } catch (...) {
    if (run.failure.causes() != size() || world.has_sent() || world.has_failed() || world.aborted())
      why_ended_ = reason();
    throw;
  }
}

SHARDWISE_INLINE void KeptRanks::Serve::operator()(int rank) const noexcept {
  group_of_thread = ranks.group_.get();
  for (std::uint64_t number = 1; RankRun* const run = ranks.posted(number); ++number) {
    current_mark = {};  // a program that threw may have left its own
    last_step = 0;
    run->run(*ranks.communicators_[static_cast<std::size_t>(rank)]);
  }
}

SHARDWISE_INLINE std::shared_ptr<ThreadGroup> KeptRanks::group_of(int ranks,
                                                                  ThreadOptions options) try {
  require_ranks("RankGroup", ranks);
  return make_group(ranks, options.timeout);
} catch (const std::bad_alloc&) {
  fail_without_memory("RankGroup", ranks);
} catch (const std::length_error&) {
  fail_without_memory("RankGroup", ranks);
}

SHARDWISE_INLINE void KeptRanks::post(RankRun* run) {
  {
    const std::scoped_lock lock(mutex_);
    run_ = run;
    ++number_;
  }
  has_posted_.notify_all();
}

SHARDWISE_INLINE RankRun* KeptRanks::posted(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  has_posted_.wait(lock, [&] { return number_ >= number; });
  return run_;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
