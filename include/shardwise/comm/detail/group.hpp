#pragma once
// A group of ranks that are threads, and the one step of which all its collectives are made.

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
#include "shardwise/comm/detail/job.hpp"
#include "shardwise/comm/detail/mailbox.hpp"
#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// What a rank publishes besides its call.
struct Offer {
  /// As a number of bytes: data that is not to be copied, but read where it lies.
  static constexpr std::size_t in_place = std::numeric_limits<std::size_t>::max();

  const void* data = nullptr;
  std::size_t bytes = 0;
  void* out = nullptr;  ///< memory that peers may write to
};

/// Where one rank publishes what does not fit into a PublishedCall. Small data is copied here, so
/// that its owner need not wait until all peers have read it.
struct Slot {
  static constexpr std::size_t capacity = 2048;

  alignas(64) std::byte copy[capacity];
  Call call;  // for the text of an error; peers read it only then
};

/// What the ranks of a group publish for one collective.
struct Turn {
  std::vector<Progress> arrived;  // each with a call
  std::vector<Slot> slots;

  explicit Turn(std::size_t ranks) : arrived(ranks), slots(ranks) {}

  std::size_t ranks() const { return slots.size(); }
  const PublishedCall& operator[](std::size_t rank) const { return arrived[rank].call; }

  /// The PublishedCall is written last, because peers already poll its cache line.
  void publish(std::size_t rank, const Call& call, const Offer& offer) {
    const bool copies = offer.bytes <= Slot::capacity;
    if (copies && offer.bytes != 0) std::memcpy(slots[rank].copy, offer.data, offer.bytes);
    slots[rank].call = call;
    arrived[rank].call = {CallRecord(call), copies ? nullptr : offer.data, offer.out};
  }
};

/// Collective number e (from 1) runs so:
///
/// 1. A rank publishes its part and advances its own `arrived`. When all P have, e is complete. A
///    rank that gives up first stops one that has not arrived, and goes on as usual if there is
///    none: so either every rank finds e complete or none ever does, and no rank unwinds while a
///    peer reads its memory.
/// 2. Every rank compares all P calls before it reads any data. All see the same notices, so all
///    come to the same verdict.
/// 3. They read each other's data, which must not throw.
/// 4. Unless all data was copied into the slots: they wait until all have advanced `departed_`.
///
/// There are two turns: a rank writes its place in that of e again in e + 2, which it can begin
/// only after all have arrived in e + 1 and so have left e.
class Group {
 public:
  Group(std::shared_ptr<Job> job, std::vector<int> ranks)
      : job_(std::move(job)),
        ranks_(std::move(ranks)),
        turns_{Turn(ranks_.size()), Turn(ranks_.size())},
        members_(ranks_.size()),
        departed_(ranks_.size()),
        mailboxes_(ranks_.size() * ranks_.size()) {
    for (Member& member : members_) member.pointers.resize(2 * ranks_.size() * sizeof(void*));
  }

  const std::shared_ptr<Job>& job() const { return job_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int job_rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  /// Publishes `offer` and calls read(turn) when all ranks have agreed on `call`.
  template <class Read>
  void exchange(int rank, const Call& call, const Offer& offer, Read&& read) {
    static_assert(
        noexcept(read(std::declval<const Turn&>())),
        "what runs while ranks read each other's memory must not throw: mark it noexcept");
    const Turn& turn = arrive(rank, call, offer);
    bool agreed = true;
    bool all_copied = true;
    for (std::size_t r = 0; r < turn.ranks(); ++r) {
      agreed &= turn[r].record == turn[0].record;
      all_copied &= turn[r].copied();
    }
    if (agreed && all_copied) return read(turn);
    std::string mismatch;
    if (agreed)
      read(turn);
    else
      mismatch = describe_mismatch(rank, turn);
    depart(rank, call);
    if (!agreed) throw collective_error(mismatch);
  }

  /// The data of all ranks as pointers to T. Valid until this rank's next call.
  template <class T>
  std::span<const T* const> pointers(int rank, const Turn& turn) noexcept {
    const auto all = scratch<const T*>(rank, 0);
    for (std::size_t r = 0; r < turn.ranks(); ++r) {
      // The copy's address comes from the slot's, so that reading it need not wait for `data`.
      if (turn[r].copied()) [[likely]]
        ::new (&all[r]) const T*(reinterpret_cast<const T*>(turn.slots[r].copy));
      else
        ::new (&all[r]) const T*(static_cast<const T*>(turn[r].data));
    }
    return all;
  }

  /// The outputs of all ranks, from element `first` on. As `pointers`.
  template <class T>
  std::span<T* const> outputs(int rank, const Turn& turn, std::size_t first) noexcept {
    const auto all = scratch<T*>(rank, 1);
    for (std::size_t r = 0; r < turn.ranks(); ++r)
      ::new (&all[r]) T*(static_cast<T*>(turn[r].out) + first);
    return all;
  }

  void send(int rank, const Call& call, std::span<const std::byte> bytes) {
    if (job_->aborted()) job_->fail(message_wait(call, {}, 0, call.root));
    mailbox(rank, call.root).put(call, bytes);
    job_->wake();
  }

  void receive(int rank, const Call& call, std::span<std::byte> bytes) {
    Mailbox& box = mailbox(call.root, rank);
    const Wait wait = message_wait(call, {&box.sent(), 1}, box.next(), call.root);
    if (job_->aborted()) job_->fail(wait);
    job_->wait(job_rank(rank), wait);
    bool accepted = false;
    const Call sent = box.take(
        bytes, [&](const Call& message) { return accepted = is_same_message(message, call); });
    if (accepted) return;
    throw collective_error(
        describe_message_mismatch(job_rank(call.root), sent, job_rank(rank), call));
  }

 private:
  /// What one rank alone reads and writes.
  struct alignas(64) Member {
    std::uint64_t collectives = 0;
    std::uint64_t departures = 0;
    bool broken = false;              // a collective of this group was given up
    std::vector<std::byte> pointers;  // storage for two arrays of one pointer per rank
  };

  const Turn& arrive(int rank, const Call& call, const Offer& offer) {
    Member& me = members_[static_cast<std::size_t>(rank)];
    const std::uint64_t number = me.collectives + 1;
    Turn& turn = turns_[number % 2];
    const std::uint64_t of_turn = (number + 1) / 2;
    const Wait wait{turn.arrived, of_turn * Progress::stride, &call, number, ranks_, ranks_};
    if (me.broken || job_->aborted()) job_->fail(wait);
    turn.publish(static_cast<std::size_t>(rank), call, offer);
    me.collectives = number;
    me.broken = true;  // until the wait has succeeded
    Progress& mine = turn.arrived[static_cast<std::size_t>(rank)];
    if (!mine.advance_from(wait.target - Progress::stride)) job_->fail(wait);
    meet(rank, wait);
    me.broken = false;
    return turn;
  }

  void depart(int rank, const Call& call) {
    Member& me = members_[static_cast<std::size_t>(rank)];
    me.departures += Progress::stride;
    departed_[static_cast<std::size_t>(rank)].advance();
    meet(rank, {departed_, me.departures, &call, me.collectives, ranks_, ranks_, false});
  }

  /// The last rank to advance wakes those who sleep.
  void meet(int rank, const Wait& wait) {
    if (wait.done())
      job_->wake();
    else
      job_->wait(job_rank(rank), wait);
  }

  std::string describe_mismatch(int rank, const Turn& turn) const noexcept {
    return detail::describe_mismatch(
        members_[static_cast<std::size_t>(rank)].collectives, ranks_,
        [&](std::size_t q, std::size_t r) { return turn[q].record == turn[r].record; },
        [&](std::size_t r) { return to_string(turn.slots[r].call); });
  }

  Wait message_wait(const Call& call, std::span<Progress> sent, std::uint64_t target,
                    int partner) const {
    return {sent, target, &call,
            0,    ranks_, std::span(ranks_).subspan(static_cast<std::size_t>(partner), 1)};
  }

  Mailbox& mailbox(int from, int to) {
    return mailboxes_[static_cast<std::size_t>(from) * ranks_.size() +
                      static_cast<std::size_t>(to)];
  }

  template <class Pointer>
  std::span<Pointer> scratch(int rank, std::size_t which) noexcept {
    std::vector<std::byte>& bytes = members_[static_cast<std::size_t>(rank)].pointers;
    return {reinterpret_cast<Pointer*>(bytes.data()) + which * ranks_.size(), ranks_.size()};
  }

  std::shared_ptr<Job> job_;
  std::vector<int> ranks_;  // of the job, in the order of this group
  std::array<Turn, 2> turns_;
  std::vector<Member> members_;
  std::vector<Progress> departed_;
  std::vector<Mailbox> mailboxes_;
};

}  // namespace shardwise::detail
