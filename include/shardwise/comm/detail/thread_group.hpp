#pragma once
// A group of ranks that are threads, and the exchange from which all its collectives are made.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/call_record.hpp"
#include "shardwise/comm/detail/mailbox.hpp"
#include "shardwise/comm/detail/rank_progress.hpp"
#include "shardwise/comm/detail/thread_world.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/fixed_list.hpp"

namespace shardwise::detail {

/// The buffers with which a rank takes part in a collective.
struct Contribution {
  /// As a number of bytes: peers read the data where it is, and it is not copied.
  static constexpr std::size_t in_place = std::numeric_limits<std::size_t>::max();

  const void* data = nullptr;
  std::size_t bytes = 0;
  void* out = nullptr;  ///< memory that peers may write to
};

/// Where one rank publishes what does not fit into a Publication. Small data is copied here, so
/// that its owner need not wait until all peers have read it.
struct Slot {
  static constexpr std::size_t capacity = 2048;

  alignas(64) std::byte copy[capacity];
  const Call* call = nullptr;  // for the text of an error, which is made before any rank departs
};

/// The data that the ranks of a group publish for one collective. A group has two of them, which
/// its collectives use alternately.
struct Epoch {
  FixedList<Progress> arrived;  // each with a Publication
  FixedList<Slot> slots;

  explicit Epoch(std::size_t ranks) : arrived(ranks), slots(ranks) {}

  std::size_t ranks() const { return slots.size(); }
  const Publication& operator[](std::size_t rank) const { return arrived[rank].publication; }

  /// The Publication is written last, because peers already poll its cache line.
  void publish(std::size_t rank, const Call& call, const Contribution& contribution) {
    const bool copies = contribution.bytes <= Slot::capacity;
    if (copies && contribution.bytes != 0)
      std::memcpy(slots[rank].copy, contribution.data, contribution.bytes);
    slots[rank].call = &call;
    arrived[rank].publication = {CallRecord(call), copies ? nullptr : contribution.data,
                                 contribution.out};
  }
};

/// Collective number e (from 1) has four steps:
///
/// 1. A rank publishes its contribution and advances its own `arrived`. When all P ranks have done
///    so, e is complete. A rank that stops waiting first stops a rank that has not arrived; if all
///    have arrived, it continues as usual. So either every rank finds e complete or none does, and
///    no rank unwinds while a peer reads its memory.
/// 2. Every rank compares all P calls before it reads any data. All ranks see the same records, so
///    all come to the same result.
/// 3. They read each other's data, which must not throw.
/// 4. They wait until all ranks have advanced `departed_`. This step is left out if all data was
///    copied into the slots.
///
/// There are two epochs. A rank writes again into the epoch of e in collective e + 2, which it can
/// begin only after all ranks have arrived in e + 1 and so have finished e.
class ThreadGroup {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> ranks);

  const std::shared_ptr<ThreadWorld>& world() const { return world_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int world_rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  /// Publishes `contribution` and calls read(epoch) when all ranks have agreed on `call`.
  template <class Read>
  void exchange(int rank, const Call& call, const Contribution& contribution, Read&& read) {
    static_assert(
        noexcept(read(std::declval<const Epoch&>())),
        "what runs while ranks read each other's memory must not throw: mark it noexcept");
    const Epoch& epoch = arrive(rank, call, contribution);
    bool agreed = true;
    bool all_copied = true;
    for (std::size_t r = 0; r < epoch.ranks(); ++r) {
      agreed &= epoch[r].record == epoch[0].record;
      all_copied &= epoch[r].copied();
    }
    if (agreed && all_copied) return read(epoch);
    if (!agreed) throw_mismatch(rank, call, epoch);
    read(epoch);
    depart(rank, call);
  }

  /// The data of all ranks as pointers to T. Valid until this rank's next call.
  template <class T>
  std::span<const T* const> pointers(int rank, const Epoch& epoch) noexcept {
    const auto all = scratch<const T*>(rank, 0);
    for (std::size_t r = 0; r < epoch.ranks(); ++r) {
      // The copy's address comes from the slot's, so that reading it need not wait for `data`.
      if (epoch[r].copied()) [[likely]]
        ::new (&all[r]) const T*(reinterpret_cast<const T*>(epoch.slots[r].copy));
      else
        ::new (&all[r]) const T*(static_cast<const T*>(epoch[r].data));
    }
    return all;
  }

  /// The outputs of all ranks, from element `first` on. As `pointers`.
  template <class T>
  std::span<T* const> outputs(int rank, const Epoch& epoch, std::size_t first) noexcept {
    const auto all = scratch<T*>(rank, 1);
    for (std::size_t r = 0; r < epoch.ranks(); ++r)
      ::new (&all[r]) T*(static_cast<T*>(epoch[r].out) + first);
    return all;
  }

  void send(int rank, const Call& call, std::span<const std::byte> bytes);

  void receive(int rank, const Call& call, std::span<std::byte> bytes);

  /// As receive, but takes the next message whatever its call, which it returns; its sender sends
  /// as many bytes.
  Call receive_any(int rank, const Call& call, std::span<std::byte> bytes);

 private:
  /// State that only one rank reads and writes.
  struct alignas(64) Member {
    std::uint64_t collectives = 0;
    std::uint64_t departures = 0;
    bool broken = false;                  // a collective of this group failed
    std::vector<unsigned char> pointers;  // storage for two arrays of one pointer per rank
  };

  const Epoch& arrive(int rank, const Call& call, const Contribution& contribution) {
    Member& me = members_[static_cast<std::size_t>(rank)];
    const std::uint64_t number = me.collectives + 1;
    Epoch& epoch = epochs_[number % 2];
    const std::uint64_t use = (number + 1) / 2;
    const Wait wait = wait_for_all(epoch.arrived, use * Progress::stride, call, number);
    if (me.broken || world_->aborted()) world_->fail(wait);
    epoch.publish(static_cast<std::size_t>(rank), call, contribution);
    me.collectives = number;
    me.broken = true;  // until the wait has succeeded
    Progress& mine = epoch.arrived[static_cast<std::size_t>(rank)];
    if (!mine.advance_from(wait.target - Progress::stride)) world_->fail(wait);
    wake_or_wait(rank, wait);
    me.broken = false;
    return epoch;
  }

  void depart(int rank, const Call& call) {
    Member& me = members_[static_cast<std::size_t>(rank)];
    me.departures += Progress::stride;
    departed_[static_cast<std::size_t>(rank)].advance();
    Wait wait = wait_for_all(departed_, me.departures, call, me.collectives);
    wait.can_fail = false;
    wake_or_wait(rank, wait);
  }

  /// The last rank to advance wakes the ranks that sleep.
  void wake_or_wait(int rank, const Wait& wait) {
    if (wait.done())
      world_->wake();
    else
      world_->wait(world_rank(rank), wait);
  }

  [[noreturn, gnu::cold]] void throw_mismatch(int rank, const Call& call, const Epoch& epoch);

  std::string describe_mismatch(int rank, const Epoch& epoch) const noexcept;

  std::span<const int> ranks() const { return {ranks_.data(), ranks_.size()}; }

  Wait wait_for_all(FixedList<Progress>& progress, std::uint64_t target, const Call& call,
                    std::uint64_t number) const {
    return {progress.data(), target, {&call, number, ranks()}, ranks()};
  }

  /// For the partner of the call.
  Wait message_wait(const Call& call, Mailbox& box, std::uint64_t target) const {
    const int* const partner = &ranks_[static_cast<std::size_t>(call.root)];
    return {&box.sent(), target, {&call, 0, ranks()}, {partner, 1}};
  }

  /// Waits for the next message of the partner of `call`; see Mailbox.
  template <class Accept>
  Call take(int rank, const Call& call, std::span<std::byte> bytes, Accept accept) {
    Mailbox& box = mailbox(call.root, rank);
    const Wait wait = message_wait(call, box, box.next());
    if (world_->aborted()) world_->fail(wait);
    world_->wait(world_rank(rank), wait);
    return box.take(bytes, accept);
  }

  Mailbox& mailbox(int from, int to) {
    return mailboxes_[static_cast<std::size_t>(from) * ranks_.size() +
                      static_cast<std::size_t>(to)];
  }

  template <class Pointer>
  std::span<Pointer> scratch(int rank, std::size_t which) noexcept {
    std::vector<unsigned char>& bytes = members_[static_cast<std::size_t>(rank)].pointers;
    return {reinterpret_cast<Pointer*>(bytes.data()) + which * ranks_.size(), ranks_.size()};
  }

  std::shared_ptr<ThreadWorld> world_;
  std::vector<int> ranks_;  // world ranks, in the order of this group
  std::array<Epoch, 2> epochs_;
  FixedList<Member> members_;
  FixedList<Progress> departed_;
  FixedList<Mailbox> mailboxes_;
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

SHARDWISE_INLINE ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorld> world,
                                          std::vector<int> ranks)
    : world_(std::move(world)),
      ranks_(std::move(ranks)),
      epochs_{Epoch(ranks_.size()), Epoch(ranks_.size())},
      members_(ranks_.size()),
      departed_(ranks_.size()),
      mailboxes_(ranks_.size() * ranks_.size()) {
  for (Member& member : members_) member.pointers.resize(2 * ranks_.size() * sizeof(void*));
}

SHARDWISE_INLINE void ThreadGroup::send(int rank, const Call& call,
                                        std::span<const std::byte> bytes) {
  Mailbox& box = mailbox(rank, call.root);
  if (world_->aborted()) world_->fail(message_wait(call, box, 0));
  world_->note_sent();
  box.put(call, bytes);
  world_->wake();
}

SHARDWISE_INLINE void ThreadGroup::receive(int rank, const Call& call, std::span<std::byte> bytes) {
  bool accepted = false;
  const Call sent = take(rank, call, bytes, [&](const Call& message) {
    return accepted = is_same_message(message, call);
  });
  if (accepted) return;
  throw collective_error(
      describe_message_mismatch(world_rank(call.root), sent, world_rank(rank), call));
}

SHARDWISE_INLINE Call ThreadGroup::receive_any(int rank, const Call& call,
                                               std::span<std::byte> bytes) {
  return take(rank, call, bytes, [](const Call&) { return true; });
}

[[gnu::noinline]] SHARDWISE_INLINE void ThreadGroup::throw_mismatch(int rank, const Call& call,
                                                                    const Epoch& epoch) {
  const std::string mismatch = describe_mismatch(rank, epoch);
  depart(rank, call);
  throw collective_error(mismatch);
}

SHARDWISE_INLINE std::string ThreadGroup::describe_mismatch(int rank,
                                                            const Epoch& epoch) const noexcept try {
  FixedList<CallText> texts(epoch.ranks());
  for (std::size_t r = 0; r < epoch.ranks(); ++r) texts[r] = CallText(*epoch.slots[r].call);
  return detail::describe_mismatch(
      members_[static_cast<std::size_t>(rank)].collectives, ranks(), texts.data(),
      [&](std::size_t q, std::size_t r) { return epoch[q].record == epoch[r].record; });
} catch (...) {
  return {};
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
