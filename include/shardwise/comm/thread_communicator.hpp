#pragma once
// Collectives between ranks that are threads of one process and read each other's memory.

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/detail/peer_moves.hpp"
#include "shardwise/comm/detail/thread_group.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/ordered_sum.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/core/compiled.hpp"

namespace shardwise {

/// A rank that is a thread; run_ranks makes it. Copies are the same rank of the same group. It
/// keeps the contract of `Communicator`, and further:
///
/// - Sums run in rank order: all ranks get the same bits, in every run.
/// - Calls that differ are a collective_error on every rank, which says which rank called what. No
///   rank has then read the memory of another one. The group can go on if every rank catches the
///   error.
/// - When a rank throws, every other rank that run_ranks started gets a peer_error in the call in
///   which it waits or which it makes next, in groups made by split too. When a rank returns, only
///   the ranks that wait for it get a peer_error.
/// - In a deadlock each rank gets a collective_error that says in which call each rank waits.
/// - A message that does not fit its receive is dropped, and the collective_error names both calls.
///   Messages that no rank receives are dropped with the group.
/// - After the first calls nothing is allocated; split allocates.
///
/// Per rank and for n bytes on each, an all_reduce reads and writes 2n; everything else copies each
/// element once, directly from the memory of one rank to that of the other. Data of at most 2 KiB
/// is copied once more, which saves the second of two waits.
class ThreadCommunicator : public detail::PeerMoves<ThreadCommunicator> {
 public:
  /// Rank `rank` of `group`; run_ranks makes both.
  ThreadCommunicator(std::shared_ptr<detail::ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  ///@{
  /// As `Communicator` says.
  int rank() const noexcept { return rank_; }
  int size() const { return group_->size(); }
  ThreadCommunicator split(int color, int key);
  ///@}

  /// Ranks always compare their calls.
  static constexpr bool compares_calls() { return true; }

  /// See ReadsPeers.
  template <class T, class F>
  void read_peers(const Call& call, std::span<T> mine, F&& f) {
    using Value = std::remove_const_t<T>;
    static_assert(std::is_nothrow_invocable_v<F&, std::span<const Value* const>>,
                  "what read_peers runs while peers read each other's memory must not throw, and "
                  "takes std::span<const T* const>: mark it noexcept");
    group_->exchange(
        rank_, call, {mine.data(), mine.size_bytes()},
        [&](const Epoch& epoch) noexcept { f(group_->pointers<Value>(rank_, epoch)); });
  }

  /// Gives all ranks a pointer to `mine`, calls f(std::span<const T* const>) with the pointers of
  /// all when they have agreed on `call`, and returns when f has ended on every rank. No rank stops
  /// this last wait early. f must not throw.
  template <class T, class F>
  void together(const Call& call, const T& mine, F&& f) {
    group_->exchange(rank_, call, {&mine, detail::Contribution::in_place},
                     [&](const Epoch& epoch) noexcept { f(group_->pointers<T>(rank_, epoch)); });
  }

  ///@{
  /// For a communicator whose data lies elsewhere: a record takes the place of the data of `call`,
  /// a message. The receiver gets the next record of its partner, of whatever call, which it
  /// returns.
  template <class Record>
  void send_record(const Call& call, const Record& record) {
    static_assert(std::is_trivially_copyable_v<Record>);
    group_->send(rank_, call, std::as_bytes(std::span(&record, 1)));
  }
  template <class Record>
  Call receive_record(const Call& call, Record& record) {
    static_assert(std::is_trivially_copyable_v<Record>);
    return group_->receive_any(rank_, call, std::as_writable_bytes(std::span(&record, 1)));
  }
  ///@}

  /// The rank, of those that run_ranks started, of rank `rank` of this group.
  int world_rank(int rank) const { return group_->world_rank(rank); }

  /// Whether both are of one run_ranks or RankGroup, so that their ranks are the same threads.
  bool shares_threads_with(const ThreadCommunicator& other) const {
    return group_->world() == other.group_->world();
  }

 private:
  friend Collectives<ThreadCommunicator>;
  friend PeerMoves;
  using Epoch = detail::Epoch;
  using PeerMoves::move;

  template <class T>
  void move(const Call& call, const moves::AllReduce<T>& m) {
    group_->exchange(rank_, call, {m.in.data(), m.in.size_bytes(), m.out.data()},
                     [&](const Epoch& epoch) noexcept {
                       const auto inputs = group_->pointers<T>(rank_, epoch);
                       if (epoch[0].copied())
                         sum(inputs, 0, m.out, m.reduction);
                       else
                         reduce_share<T>(epoch, inputs, m.in.size(), m.reduction);
                     });
  }

  template <class T>
  void move(const Call& call, const moves::Send<T>& m) {
    group_->send(rank_, call, std::as_bytes(m.in));
  }

  template <class T>
  void move(const Call& call, const moves::Receive<T>& m) {
    group_->receive(rank_, call, std::as_writable_bytes(m.out));
  }

  template <class T, class F>
  void with_peers(const Call& call, std::span<const T> mine, const F& f) {
    read_peers(call, mine, [&](std::span<const T* const> all) noexcept { f(all); });
  }

  template <class T>
  static void copy(const T* from, std::span<T> to) noexcept {
    if (from != to.data()) std::copy_n(from, to.size(), to.data());
  }

  template <class T>
  static void sum(std::span<const T* const> inputs, std::size_t first, std::span<T> out,
                  Reduction reduction) noexcept {
    ordered_sum<T>(inputs, first, out.size(), std::array{out.data()}, reduction);
  }

  /// Reduces this rank's share of `elements`, in whole cache lines, into the output of every rank.
  template <class T>
  void reduce_share(const Epoch& epoch, std::span<const T* const> inputs, std::size_t elements,
                    Reduction reduction) noexcept {
    constexpr std::size_t line = 64 / sizeof(T);
    const std::size_t lines = (elements + line - 1) / line;
    const auto begins = [&](std::size_t rank) {
      return std::min(elements, lines * rank / epoch.ranks() * line);
    };
    const std::size_t first = begins(index(rank_));
    const auto outputs = group_->outputs<T>(rank_, epoch, first);
    ordered_sum<T>(inputs, first, begins(index(rank_) + 1) - first, outputs, reduction);
  }

  std::shared_ptr<detail::ThreadGroup> group_;
  int rank_;
};

static_assert(ReadsPeers<ThreadCommunicator>);

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include <cstring>
#include <vector>

#include "shardwise/comm/detail/split.hpp"
#include "shardwise/core/fixed_list.hpp"

namespace shardwise {

/// Makes two exchanges: of colors and keys, and of the new groups, which their first ranks make.
SHARDWISE_INLINE ThreadCommunicator ThreadCommunicator::split(int color, int key) {
  using Choice = detail::SplitChoice;
  const Choice mine{color, key};
  detail::FixedList<Choice> choices(index(size()));
  const Call call{.operation = Operation::split};
  group_->exchange(rank_, call, {&mine, sizeof(mine)}, [&](const Epoch& epoch) noexcept {
    for (std::size_t r = 0; r < epoch.ranks(); ++r)
      std::memcpy(&choices[r], epoch.slots[r].copy, sizeof(Choice));
  });
  std::vector<int> members = detail::ranks_of_color(choices, color);
  const int maker = members.front();
  const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
  std::shared_ptr<detail::ThreadGroup> made;
  if (rank_ == maker) {
    for (int& member : members) member = group_->world_rank(member);
    made = std::make_shared<detail::ThreadGroup>(group_->world(), std::move(members));
  }
  group_->exchange(rank_, call, {&made, detail::Contribution::in_place},
                   [&](const Epoch& epoch) noexcept {
                     using Made = const std::shared_ptr<detail::ThreadGroup>;
                     if (rank_ != maker) made = *static_cast<Made*>(epoch[index(maker)].data);
                   });
  return {std::move(made), static_cast<int>(place)};
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
