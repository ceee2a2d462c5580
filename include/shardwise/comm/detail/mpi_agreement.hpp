#pragma once
// Checks that all ranks of a group are about to make the same call, by control messages before it.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/block_mismatch.hpp"
#include "shardwise/comm/detail/chosen_checks.hpp"
#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/comm/detail/mpi_control_channel.hpp"
#include "shardwise/comm/detail/mpi_exchange.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_transfers.hpp"
#include "shardwise/comm/detail/mpi_wait.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::mpi {

/// The level of checks of all ranks of `comm`, see agreed_checks(). A collective of plain MPI.
inline CheckLevel agree_on_checks(const OwnComm& comm, CheckLevel program) {
  const ChosenChecks mine(program);
  std::vector<ChosenChecks> all(static_cast<std::size_t>(comm.size()));
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm.get()),
        "MPI_Allgather");
  return agreed_checks(all.size(), [&](std::size_t r) { return all[r]; });
}

/// One rank's part in the comparison of calls. It cannot be copied or moved, because MPI writes
/// into it.
class Agreement {
  /// At least the number of rounds of compare_in_rounds.
  static std::size_t most_rounds(std::size_t ranks) {
    return static_cast<std::size_t>(std::bit_width(ranks));
  }

 public:
  /// One comparison of the calls of all ranks. MPI reads and writes it from begin() to end() or
  /// abandon().
  struct Comparison {
    explicit Comparison(std::size_t ranks)
        : calls(ranks),
          outbox(std::make_unique<ControlMessage[]>(most_rounds(ranks))),
          requests(2 * ranks, MPI_REQUEST_NULL) {}
    Comparison(const Comparison&) = delete;
    Comparison& operator=(const Comparison&) = delete;
    ~Comparison() {
      if (is_read) static_cast<void>(outbox.release());
    }

    std::vector<ControlMessage> calls;         ///< by rank
    std::unique_ptr<ControlMessage[]> outbox;  ///< what this rank sends, in each round
    std::vector<MPI_Request> requests;         ///< receives, then sends
    bool is_read = false;                      ///< by MPI, also when this rank has left

    std::span<MPI_Request> received() { return std::span(requests).first(calls.size()); }
    std::span<MPI_Request> sent() { return std::span(requests).subspan(calls.size()); }
  };

  /// A collective of the group of `exchange`, which outlives it and whose members have these world
  /// ranks.
  Agreement(std::shared_ptr<ControlChannel> channel, Exchange& exchange,
            std::span<const int> world_ranks, int rank)
      : channel_(std::move(channel)),
        exchange_(exchange),
        world_ranks_(world_ranks),
        rank_(static_cast<std::size_t>(rank)),
        of_call_(world_ranks.size()),
        calls_(of_call_.calls),
        hearers_(most_rounds(world_ranks.size())),
        requests_(of_call_.requests),
        has_left_(world_ranks.size()) {
    std::vector<int> numbers(world_ranks.size());
    const int number = rank == 0 ? channel_->number_of_next_group() : 0;
    exchange_.gather_bytes(&number, numbers.data(), sizeof(number));
    collective_tag_ = 2 * numbers[0];
    message_tag_ = 2 * numbers[0] + 1;
  }
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  /// Tells the other ranks that this one leaves, and does not wait: ranks that wait for this one
  /// get a peer_error. In a larger group they hear it in the rounds. Those that wait for a message
  /// of this rank hear it if it has sent or received one in the group or leaves by an exception, or
  /// if they receive from it in the rounds: a message from each rank to each, whenever a job ends,
  /// is too much for thousands of ranks.
  ~Agreement() {
    static_cast<void>(parting_.release());
    if (is_finalized()) return;
    const auto tell = [&](int tag) {
      return [this, tag](std::size_t r) { channel_->send_left(world_ranks_[r], tag); };
    };
    for_each_hearer(tell(collective_tag_));
    if (has_messages_ || std::uncaught_exceptions() > 0)
      for_each_other(tell(message_tag_));
    else
      for_each_hearer(tell(message_tag_));
    receive_partings();
  }

  /// Returns if all ranks are about to make this call. Otherwise throws the same on all ranks: a
  /// collective_error if the calls differ, a peer_error if a rank has left the group. A peer_error
  /// on this rank alone if another has not come in time; then all later calls throw the same, and
  /// also after an error of MPI. If that happens to a rank in the rounds of a larger group, others
  /// may have heard of it already: they return, and end the job when it does not send its data.
  void agree(const Call& call) {
    if (exchange_.is_direct()) {
      begin(call, of_call_);
      return end(call, of_call_, exchange_.wait());
    }
    throw_if_anyone_left(call);
    calls_[rank_] = ControlMessage(exchange_.number(), call);
    const bool agreed = compare_in_rounds();
    throw_if_anyone_left(call);
    if (agreed) return;
    const ControlMessage mine = calls_[rank_];
    exchange_.gather_bytes(&mine, calls_.data(), sizeof mine);
    throw_mismatch(call, of_call_);
  }

  /// The first part of agree(): tells the other ranks, and does not wait.
  void begin(const Call& call, Comparison& of) {
    throw_if_anyone_left(call);
    of.outbox[0] = of.calls[rank_] = ControlMessage(exchange_.number(), call);
    or_give_up(of, of.received(), of.sent(), [&] {
      for (std::size_t r = 0; r < of.calls.size(); ++r)
        if (r != rank_) start_receive(of.calls[r], r, of.received()[r]);
      for (std::size_t r = 0; r < of.calls.size(); ++r)
        if (r != rank_) start_send(of.outbox[0], r, of.sent()[r]);
    });
  }

  /// Of calls that have come: whether they are the same.
  static bool are_same(const Comparison& of) {
    return std::ranges::all_of(of.calls,
                               [&](const ControlMessage& one) { return one == of.outbox[0]; });
  }

  /// Of calls that have come: notes who has left the group instead of making one.
  void note_left(const Comparison& of) {
    for (std::size_t r = 0; r < of.calls.size(); ++r)
      if (of.calls[r].has_left()) has_left_[r] = 1;
  }
  /// Throws a peer_error if a rank has left the group, or if a wait for one has failed.
  void throw_if_anyone_left(const Call& call) const {
    for (std::size_t r = 0; r < has_left_.size(); ++r) throw_if_left(call, r);
  }

  /// Ends a comparison whose wait has failed with this error.
  void abandon(Comparison& of, const std::exception& error) noexcept {
    give_up(error, of.received());
    for (MPI_Request& request : of.sent()) forget(of, request);
  }

  /// The second part of agree(): waits, and throws as that does.
  void end(const Call& call, Comparison& of, const MessageWait& wait) {
    or_give_up(of, of.received(), of.sent(), [&] {
      wait_all(of.received(), world_ranks_, wait);
      note_left(of);
      for (std::size_t r = 0; r < of.calls.size(); ++r)
        if (!of.calls[r].has_call()) forget(of, of.sent()[r]);  // no rank will receive it
      wait_all(of.sent(), world_ranks_, wait);
    });
    throw_if_anyone_left(call);
    if (!are_same(of)) throw_mismatch(call, of);
  }

  /// For an all_to_all, after agree(), which does not compare counts: throws on all ranks if one
  /// sends another size than its receiver expects. Each rank tells each what it sends there, and
  /// all what it finds, so that nobody needs the counts of all pairs.
  void agree_on_blocks(std::span<const std::size_t> sent, std::span<const std::size_t> expected) {
    const std::size_t ranks = calls_.size();
    sent_.assign(sent.begin(), sent.end());
    sent_here_.assign(sent.begin(), sent.end());  // of this rank itself
    for (std::size_t r = 0; r < ranks; ++r) {
      exchange_.outgoing()[r] = count_of(sent_[r]);
      exchange_.incoming()[r] = count_of(sent_here_[r]);
    }
    exchange_.run(Dtype::uint8);
    found_.resize(ranks);
    const auto mine = first_block_mismatch(rank_, sent_here_, expected);
    static_assert(std::is_trivially_copyable_v<decltype(found_)::value_type>);
    exchange_.gather_bytes(&mine, found_.data(), sizeof mine);
    const auto name = [&](std::size_t rank) { return world_ranks_[rank]; };
    if (const auto first = first_found(found_))
      throw collective_error(describe_block_mismatch(*first, name));
  }

  /// Tells the receiver about a message; `message` must stay until `request` is done.
  void announce(const ControlMessage& message, int to, MPI_Request* request) {
    has_messages_ = true;
    check(MPI_Isend(&message, ControlMessage::bytes, MPI_BYTE,
                    world_ranks_[static_cast<std::size_t>(to)], message_tag_, channel_->comm(),
                    request),
          "MPI_Isend");
  }

  /// The call that sends the next message of rank `call.root`. Throws a peer_error if that rank has
  /// left or does not send in time.
  Call next_message(const Call& call) {
    has_messages_ = true;
    const auto from = static_cast<std::size_t>(call.root);
    throw_if_left(call, from);
    ControlMessage message;
    MPI_Request request = MPI_REQUEST_NULL;
    try {
      check(MPI_Irecv(&message, ControlMessage::bytes, MPI_BYTE, world_ranks_[from], message_tag_,
                      channel_->comm(), &request),
            "MPI_Irecv");
      wait_all({&request, 1}, world_ranks_.subspan(from, 1), exchange_.wait_for_message(call));
    } catch (const std::exception& error) {
      give_up(error, {&request, 1});
      throw;
    }
    if (message.has_left()) {
      has_left_[from] = 1;
      tell_others_of(from);
    }
    throw_if_left(call, from);
    return message.call.as_send();
  }

 private:
  static Block count_of(std::size_t& one) {
    return {reinterpret_cast<std::byte*>(&one), sizeof one};
  }

  /// A collective of ranks that know the calls of all and that they differ.
  [[noreturn]] void throw_mismatch(const Call& call, const Comparison& of) {
    const auto same = [&](std::size_t q, std::size_t r) { return of.calls[q] == of.calls[r]; };
    const std::uint64_t number = of.outbox[0].number;
    const std::vector<CallText> texts = all_call_texts(call);
    throw collective_error(describe_mismatch(number, world_ranks_, texts.data(), same));
  }

  template <class F>
  void for_each_other(F f) const {
    for (std::size_t r = 0; r < calls_.size(); ++r)
      if (r != rank_) f(r);
  }

  /// Calls f(rank) for those that receive the control messages of this rank before a collective.
  template <class F>
  void for_each_hearer(F f) const {
    if (exchange_.is_direct()) return for_each_other(f);
    for_each_skip(static_cast<int>(rank_), static_cast<int>(calls_.size()),
                  [&](const SkipRound& round) { f(static_cast<std::size_t>(round.to)); });
  }

  /// The partings of the others, of groups that end now and before. Where one has left already,
  /// this rank may have received its parting; and in a larger group ranks that have sent messages
  /// tell all others.
  void receive_partings() noexcept try {
    Partings& partings = channel_->partings();
    const bool someone_left = !failure_.empty() || std::ranges::count(has_left_, 1) > 0;
    std::size_t added = 0;
    const auto expect = [&](std::size_t from) {
      for (const int tag : {collective_tag_, message_tag_}) {
        if (someone_left)
          partings.expect_perhaps(world_ranks_[from], tag);
        else
          partings.expect(world_ranks_[from], tag);
        ++added;
      }
    };
    if (exchange_.is_direct()) {
      for_each_other(expect);
    } else {
      for_each_skip(static_cast<int>(rank_), static_cast<int>(calls_.size()),
                    [&](const SkipRound& round) { expect(static_cast<std::size_t>(round.from)); });
      partings.expect_perhaps(MPI_ANY_SOURCE, message_tag_);
    }
    partings.receive(channel_->comm(), added);
  } catch (const std::bad_alloc&) {  // MPI keeps what is not received
  }

  /// Whether all ranks of a larger group make the same call: each rank tells what it has heard in a
  /// few rounds, until all have heard of all. One that hears that another has left goes on, so that
  /// the others hear it too.
  bool compare_in_rounds() {
    ControlMessage heard = calls_[rank_];
    ControlMessage next;
    std::size_t rounds = 0;
    const std::span<MPI_Request> received = std::span(requests_).first(1);
    const std::span<MPI_Request> sent = std::span(requests_).subspan(1, most_rounds(calls_.size()));
    const auto exchange = [&](const SkipRound& round) {
      const auto from = static_cast<std::size_t>(round.from);
      of_call_.outbox[rounds] = heard;
      start_receive(next, from, received[0]);
      start_send(of_call_.outbox[rounds], static_cast<std::size_t>(round.to), sent[rounds]);
      hearers_[rounds++] = world_ranks_[static_cast<std::size_t>(round.to)];
      wait_all(received, world_ranks_.subspan(from, 1), exchange_.wait());
      heard = heard_of_both(heard, next, from);
    };
    or_give_up(of_call_, received, sent, [&] {
      for_each_skip(static_cast<int>(rank_), static_cast<int>(calls_.size()), exchange);
      if (heard.number == ControlMessage::gave_up) {
        has_left_[static_cast<std::size_t>(heard.call.root)] = 1;
        for (MPI_Request& request : sent)
          forget(of_call_, request);  // perhaps no rank will receive it
      }
      wait_all(sent.first(rounds), hearers_, exchange_.wait());
    });
    return heard == calls_[rank_];
  }

  /// That a rank has left counts more than that calls differ.
  ControlMessage heard_of_both(const ControlMessage& heard, const ControlMessage& next,
                               std::size_t from) const {
    if (heard.number == ControlMessage::gave_up) return heard;
    if (next.has_left()) return ControlMessage::given_up_for(from);
    if (next.number == ControlMessage::gave_up || next == heard) return next;
    return ControlMessage(ControlMessage::differ);
  }

  void start_receive(ControlMessage& message, std::size_t from, MPI_Request& request) const {
    check(MPI_Irecv(&message, ControlMessage::bytes, MPI_BYTE, world_ranks_[from], collective_tag_,
                    channel_->comm(), &request),
          "MPI_Irecv");
  }
  void start_send(const ControlMessage& message, std::size_t to, MPI_Request& request) const {
    check(MPI_Isend(&message, ControlMessage::bytes, MPI_BYTE, world_ranks_[to], collective_tag_,
                    channel_->comm(), &request),
          "MPI_Isend");
  }

  template <class F>
  void or_give_up(Comparison& of, std::span<MPI_Request> received, std::span<MPI_Request> sent,
                  F f) try {
    f();
  } catch (const std::exception& error) {
    give_up(error, received);
    for (MPI_Request& request : sent) forget(of, request);
    throw;
  }

  /// Before `error` leaves: MPI no longer writes into what is received.
  void give_up(const std::exception& error, std::span<MPI_Request> received) noexcept {
    for (MPI_Request& request : received)
      if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    end_job_if_pending(received, world_ranks_[rank_], error);  // it cannot be cancelled
    exchange_.keep_communicator();
    failure_ = sentence_or({error.what()}, "out of memory");
  }

  /// A message that is sent and not awaited. MPI mostly has its own copy of one so short; else the
  /// memory of the message is never freed.
  static void forget(Comparison& of, MPI_Request& sent) noexcept {
    if (sent != MPI_REQUEST_NULL) {
      int done = 0;
      MPI_Test(&sent, &done, MPI_STATUS_IGNORE);
    }
    if (sent == MPI_REQUEST_NULL) return;
    MPI_Request_free(&sent);
    of.is_read = true;
  }

  /// For a rank that knows that another one has left: its next collective throws, and the others,
  /// which may not know, would wait for its control message.
  void tell_others_of(std::size_t who) {
    if (parting_) return;
    parting_ = std::make_unique<ControlMessage>(ControlMessage::given_up_for(who));
    for_each_hearer(
        [&](std::size_t r) { channel_->send(*parting_, world_ranks_[r], collective_tag_); });
  }

  void throw_if_left(const Call& call, std::size_t rank) const {
    if (!failure_.empty()) throw peer_error(failure_);
    if (has_left_[rank] != 0)
      throw peer_error({"in ", call, ": rank ", world_ranks_[rank],
                        " has left the group, and this call waits for it"});
  }

  std::vector<CallText> all_call_texts(const Call& call) {
    static_assert(std::is_trivially_copyable_v<CallText>);
    const CallText mine(call);
    std::vector<CallText> all(calls_.size());
    exchange_.gather_bytes(&mine, all.data(), sizeof mine);
    return all;
  }

  std::shared_ptr<ControlChannel> channel_;
  Exchange& exchange_;
  std::span<const int> world_ranks_;
  std::size_t rank_;
  int collective_tag_ = 0;
  int message_tag_ = 0;
  Comparison of_call_;                       // of the current call
  std::vector<ControlMessage>& calls_;       // its calls
  std::vector<int> hearers_;                 // the world ranks that it sends to
  bool has_messages_ = false;                // whether this rank has sent or received one
  std::unique_ptr<ControlMessage> parting_;  // what it told when it heard that another has left
  std::vector<MPI_Request>& requests_;       // its requests
  std::vector<std::size_t> sent_;            // of an all_to_all, by rank: what this rank sends
  std::vector<std::size_t> sent_here_;       // and what is sent to it
  std::vector<std::optional<BlockMismatch>> found_;  // by rank
  std::vector<char> has_left_;                       // by rank
  std::string failure_;  // the error of the wait that failed, if one has
};

}  // namespace shardwise::detail::mpi
