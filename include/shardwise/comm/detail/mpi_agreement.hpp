#pragma once
// Checks that all ranks of a group are about to make the same call, by control messages before it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/chosen_checks.hpp"
#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/comm/detail/mpi_comparison.hpp"
#include "shardwise/comm/detail/mpi_control_channel.hpp"
#include "shardwise/comm/detail/mpi_control_message.hpp"
#include "shardwise/comm/detail/mpi_exchange.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"
#include "shardwise/comm/detail/mpi_transfers.hpp"
#include "shardwise/comm/detail/mpi_wait.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::mpi {

/// The level of checks of all ranks of `comm`, see agreed_checks(). A collective of plain MPI.
inline CheckLevel agree_on_checks(const OwnComm& comm, CheckLevel program) {
  const ChosenChecks mine(program);
  std::vector<ChosenChecks> all(static_cast<std::size_t>(comm.size()));
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm.get()),
        "MPI_Allgather");
  return agreed_checks(all.size(), [&](std::size_t r) { return all[r]; });
}

/// One rank's part in the comparisons of calls. Before a collective all ranks tell each other what
/// they know of the calls of all: in a direct group in one round, each to each; in a larger one in
/// ceil(log2 P) rounds, each to one other (SkipRound), after which all know of all. A rank that
/// hears that another has left goes on, so that the others hear it too.
class Agreement {
 public:
  /// A collective of the group of `exchange`, which outlives it and whose members have these world
  /// ranks.
  Agreement(std::shared_ptr<ControlChannel> channel, Exchange& exchange,
            std::span<const int> world_ranks)
      : channel_(std::move(channel)),
        exchange_(exchange),
        world_ranks_(world_ranks),
        tellers_(partners(exchange.place(), false)),
        partners_(tellers_),
        come_to_(static_cast<std::size_t>(gather_rounds(exchange.place().size)) + 1),
        of_call_(tellers_.size()),
        has_left_(world_ranks.size()) {
    std::ranges::copy(partners(exchange.place(), true), std::back_inserter(partners_));
    for (int& rank : partners_) rank = world_ranks_[index(rank)];
    const int number = exchange.place().rank == 0 ? channel_->number_of_next_group() : 0;
    std::vector<int> numbers;
    exchange_.gather(number, numbers);
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
    for (const int rank : hearers()) channel_->send_left(rank, collective_tag_);
    const bool tells_all = has_messages_ || std::uncaught_exceptions() > 0;
    for (const int rank : tells_all ? world_ranks_ : hearers())
      if (rank != exchange_.world_rank()) channel_->send_left(rank, message_tag_);
    receive_partings();
  }

  /// The messages of a comparison in each direction.
  std::size_t messages() const { return tellers_.size(); }

  /// Returns if all ranks are about to make this call. Otherwise throws the same on all ranks: a
  /// collective_error if the calls differ, a peer_error if a rank has left the group. A peer_error
  /// on this rank alone if another has not come in time; then all later calls throw the same, and
  /// also after an error of MPI. If that happens to a rank of a larger group, others may have heard
  /// of its call already: they return, and end the job when it does not send its data.
  void agree(const Call& call) {
    begin(call, of_call_);
    try {
      poll_until([&] { return go_on(call, of_call_); }, [&] { return missing(of_call_); },
                 exchange_.wait());
    } catch (const std::exception& error) {
      abandon(of_call_, error);
      throw;
    }
    end(call, of_call_);
  }

  /// The parts of agree(), for a comparison that is under way while the rank does other things:
  /// begin(), go_on() until it is true, and end(); or abandon() after an error.
  void begin(const Call& call, Comparison& of) const {
    throw_if_anyone_left(call);
    of.mine = of.heard = ControlMessage(exchange_.number(), call);
    of.number = come_to_.front();
    of.rounds = 0;
  }

  /// Goes on as far as it can without a wait; returns whether the comparison is through. The first
  /// time it begins the first round.
  bool go_on(const Call& call, Comparison& of) {
    while (are_done(of.received())) {
      for (std::size_t i = 0; i < of.rounds * in_round(); ++i) of.hear(of.inbox[i], tellers_[i]);
      if (come_to_[of.rounds] != of.number) break;  // an earlier comparison has not come so far
      if (of.rounds == rounds()) return is_through(of);
      begin_round(of);
    }
    throw_if_anyone_left(call);  // who says so only once
    return false;
  }

  void end(const Call& call, const Comparison& of) {
    if (of.heard == of.mine) return;
    if (of.heard.has_given_up()) throw_if_anyone_left(call);
    throw_mismatch(call, of.mine);
  }

  void abandon(Comparison& of, const std::exception& error) noexcept {
    give_up(error, of.received());
    of.forget_sent();
  }

  /// The world ranks for which a comparison waits.
  std::vector<int> missing(const Comparison& of) const {
    return missing_partners(of.requests, partners_);
  }

  /// Tells the receiver about a message; `message` must stay until `request` is done.
  void announce(const ControlMessage& message, int to, MPI_Request* request) {
    has_messages_ = true;
    channel_->send(message, world_ranks_[index(to)], message_tag_, request);
  }

  /// The call that sends the next message of rank `call.root`. Throws a peer_error if that rank has
  /// left or does not send in time.
  Call next_message(const Call& call) {
    has_messages_ = true;
    throw_if_left(call, call.root);
    const std::span<const int> from = world_ranks_.subspan(index(call.root), 1);
    ControlMessage message;
    MPI_Request request = MPI_REQUEST_NULL;
    try {
      channel_->receive(message, from.front(), message_tag_, &request);
      wait_all({&request, 1}, from, exchange_.wait_for_message(call));
    } catch (const std::exception& error) {
      give_up(error, {&request, 1});
      throw;
    }
    if (message.has_left()) {
      has_left_[index(call.root)] = 1;
      tell_others_of(call.root);
    }
    throw_if_left(call, call.root);
    return message.call.as_send();
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  /// Those from which this rank hears in a comparison, or that it tells, round after round.
  static std::vector<int> partners(Place place, bool told) {
    std::vector<int> all;
    const auto add = [&](int from, int to) { all.push_back(told ? to : from); };
    if (place.size <= direct_ranks)
      for_each_partner(place, add);
    else
      for_each_skip(place.rank, place.size, [&](const SkipRound& one) { add(one.from, one.to); });
    return all;
  }
  std::span<const int> tellers() const { return std::span(partners_).first(messages()); }
  std::span<const int> hearers() const { return std::span(partners_).subspan(messages()); }

  std::size_t rounds() const { return come_to_.size() - 1; }
  std::size_t in_round() const { return messages() / rounds(); }

  void begin_round(Comparison& of) {
    ++come_to_[of.rounds];
    const std::size_t first = of.rounds++ * in_round();
    for (std::size_t i = first; i < first + in_round(); ++i)
      channel_->receive(of.inbox[i], tellers()[i], collective_tag_, &of.received()[i]);
    for (std::size_t i = first; i < first + in_round(); ++i) {
      of.outbox[i] = of.heard;
      channel_->send(of.outbox[i], hearers()[i], collective_tag_, &of.sent()[i]);
    }
  }

  /// Once this rank has heard of all. Those who hear that one has left may receive no more; and the
  /// first that has left is why others leave.
  bool is_through(Comparison& of) {
    if (!of.heard.has_given_up() && !are_done(of.sent())) return false;
    ++come_to_[of.rounds];
    if (!of.heard.has_given_up()) return true;
    if (!knows_who_left()) has_left_[index(of.heard.call.root)] = 1;
    of.forget_sent();
    return true;
  }

  /// A collective of ranks that know that the calls differ.
  [[noreturn]] void throw_mismatch(const Call& call, const ControlMessage& mine) {
    std::vector<ControlMessage> calls;
    std::vector<CallText> texts;
    exchange_.gather(mine, calls);
    exchange_.gather(CallText(call), texts);
    const auto same = [&](std::size_t q, std::size_t r) { return calls[q] == calls[r]; };
    throw collective_error(describe_mismatch(mine.number, world_ranks_, texts.data(), same));
  }

  /// The partings of the others, of groups that end now and before. Where one has left already,
  /// this rank may have received its parting; and in a larger group ranks that have sent messages
  /// tell all others.
  void receive_partings() noexcept try {
    Partings& partings = channel_->partings();
    const bool someone_left = !failure_.empty() || knows_who_left();
    for (const int rank : tellers())
      for (const int tag : {collective_tag_, message_tag_}) {
        if (someone_left)
          partings.expect_perhaps(rank, tag);
        else
          partings.expect(rank, tag);
      }
    if (!exchange_.is_direct()) partings.expect_perhaps(MPI_ANY_SOURCE, message_tag_);
    partings.receive(channel_->comm(), 2 * messages());
  } catch (const std::bad_alloc&) {  // MPI keeps what is not received
  }

  /// Before `error` leaves: MPI no longer writes into what is received.
  void give_up(const std::exception& error, std::span<MPI_Request> received) noexcept {
    for (MPI_Request& request : received)
      if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    end_job_if_pending(received, exchange_.world_rank(), error);  // it cannot be cancelled
    exchange_.keep_communicator();
    failure_ = sentence_or({error.what()}, "out of memory");
  }

  /// For a rank that knows that another one has left: its next collective throws, and the others,
  /// which may not know, would wait for its control message.
  void tell_others_of(int who) {
    if (parting_) return;
    parting_ = std::make_unique<ControlMessage>(ControlMessage::given_up_for(who));
    for (const int rank : hearers()) channel_->send(*parting_, rank, collective_tag_);
  }

  bool knows_who_left() const { return std::ranges::count(has_left_, 1) > 0; }

  /// Throws a peer_error if a rank has left the group, or if a wait for one has failed.
  void throw_if_anyone_left(const Call& call) const {
    for (int r = 0; r < exchange_.place().size; ++r) throw_if_left(call, r);
  }
  void throw_if_left(const Call& call, int rank) const {
    if (!failure_.empty()) throw peer_error(failure_);
    if (has_left_[index(rank)] != 0)
      throw peer_error({"in ", call, ": rank ", world_ranks_[index(rank)],
                        " has left the group, and this call waits for it"});
  }

  std::shared_ptr<ControlChannel> channel_;
  Exchange& exchange_;
  std::span<const int> world_ranks_;
  std::vector<int> tellers_;            // by message: the rank of the group from which it comes
  std::vector<int> partners_;           // as ranks of the world: the tellers, and then the hearers
  std::vector<std::uint64_t> come_to_;  // by round, and at the end: comparisons so far
  Comparison of_call_;                  // of the current call
  int collective_tag_ = 0;
  int message_tag_ = 0;
  bool has_messages_ = false;                // whether this rank has sent or received one
  std::unique_ptr<ControlMessage> parting_;  // what it told when it heard that another has left
  std::vector<char> has_left_;               // by rank
  std::string failure_;                      // the error of the wait that failed, if one has
};

}  // namespace shardwise::detail::mpi
