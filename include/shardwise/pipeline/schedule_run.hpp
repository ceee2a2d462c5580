#pragma once
// A pipeline schedule runs without a model: whether it comes to its end, how long it takes, and how
// much ranks keep.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shardwise/core/growing_list.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/schedule_fault.hpp"
#include "shardwise/pipeline/stage_message.hpp"

namespace shardwise {

/// When a rank that sends to another stage goes on. A rank sends what an action gives right behind
/// it; over NCCL, where `meeting` would end in a deadlock, steps send in the order of
/// event_order.hpp.
enum class Sends : std::uint8_t {
  buffered,    ///< at once, as thread ranks do
  one_posted,  ///< when the message before it was taken: receivers have posted one receive for
               ///< outputs and one for gradients
  meeting      ///< when the receiver receives this message, as with NCCL on one stream
};

/// Times of one micro-batch on one rank, in all its chunks together, in any unit; equal for all
/// ranks, micro-batches and chunks.
struct PipelineSchedule::Costs {
  double forward = 1;              ///< of forward
  double backward_input = 1;       ///< of the part of backward for the input
  double backward_parameters = 1;  ///< of the part of backward for the parameters
  double message = 0;              ///< of one message to another rank; both compute meanwhile
};

/// The times of a pipeline schedule.
struct PipelineSchedule::Times {
  double length = 0;  ///< of the step, in the unit of the costs
  double bubble = 0;  ///< the share of all ranks' time in which they wait
  detail::GrowingList<int>
      most_in_flight{};  ///< of each rank: for how many micro-batches it keeps at one
                         ///< time what forward saves, counted in each chunk
};

namespace detail {

/// Runs a schedule in which each rank has all its actions. Outputs arrive at a rank in the order in
/// which they were sent, and so do gradients. What a rank gives itself is always buffered. Times
/// are those of buffered sends.
class ScheduleRun {
 public:
  constexpr ScheduleRun(const PipelineSchedule& schedule, Sends sends,
                        const PipelineSchedule::Costs& costs)
      : schedule_(schedule),
        sends_(sends),
        costs_(costs),
        sent_(GrowingList<Sent>::of_size(2 * static_cast<std::size_t>(schedule.ranks()) *
                                         schedule.batches_in_chunks())),
        begins_(GrowingList<double>::of_size(schedule.actions())) {
    Sent* messages = &sent_[0];
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const std::span<const PipelineSchedule::Action> actions = schedule.of(rank);
      Rank one{rank, actions.data(), actions.data() + actions.size()};
      one.outputs.sent = messages;
      one.gradients.sent = messages + schedule.batches_in_chunks();
      messages += 2 * schedule.batches_in_chunks();
      ranks_.add(one);
    }
  }
  ScheduleRun(const ScheduleRun&) = delete;
  ScheduleRun& operator=(const ScheduleRun&) = delete;

  /// Runs it as far as it can; where it cannot go on, the fault.
  constexpr PipelineSchedule::Fault run() {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (goes_on(ranks_[rank])) has_moved = true;
        if (fault_.kind != PipelineSchedule::Fault::Kind::none) return fault_;
      }
    }
    for (const Rank& rank : ranks_)
      if (rank.next != rank.end) return fault_at(rank, PipelineSchedule::Fault::Kind::deadlock);
    return {};
  }

  /// When each action of a schedule that ran to its end begins: those of rank 0, then of rank 1,
  /// and so on.
  constexpr const GrowingList<double>& begins() const { return begins_; }

  /// Of a schedule that ran to its end.
  constexpr PipelineSchedule::Times times() const {
    PipelineSchedule::Times times;
    double busy = 0;
    for (const Rank& rank : ranks_) {
      times.length = std::max(times.length, rank.clock);
      times.most_in_flight.add(rank.most_in_flight);
      busy += rank.busy;
    }
    times.bubble = 1 - busy / (times.length * schedule_.ranks());
    return times;
  }

 private:
  struct Sent {
    StageMessage message{};
    double time = 0;  // when it arrives
  };
  struct Channel {
    Sent* sent = nullptr;
    std::size_t count = 0;
    std::size_t taken = 0;
  };
  struct Rank {
    int number = 0;
    const PipelineSchedule::Action* next = nullptr;
    const PipelineSchedule::Action* end = nullptr;
    bool has_computed = false;  // the next action, but not sent what it gives
    Channel outputs{};          // to this rank
    Channel gradients{};        // to this rank
    double clock = 0;
    double busy = 0;
    int in_flight = 0;
    int most_in_flight = 0;
  };

  constexpr PipelineSchedule::Fault fault_at(const Rank& rank, PipelineSchedule::Fault::Kind kind,
                                             const StageMessage& other = {}) {
    const auto position = rank.next - schedule_.of(rank.number).data();
    return {kind, rank.number, static_cast<std::size_t>(position), *rank.next, other};
  }
  static constexpr Channel& channel(Rank& to, const StageMessage& message) {
    return message.is_gradient() ? to.gradients : to.outputs;
  }

  /// Computes the next action of a rank, or sends what it gives, if the rank need not wait.
  constexpr bool goes_on(Rank& rank) {
    if (rank.next == rank.end) return false;
    if (!rank.has_computed) {
      const StageMessage needed = needed_by(schedule_, rank.number, *rank.next);
      if (needed.exists() && !takes(rank, needed)) return false;
      begins_[static_cast<std::size_t>(rank.next - schedule_.of(0).data())] = rank.clock;
      compute(rank, rank.next->work);
      rank.has_computed = true;
    } else {
      const StageMessage given = given_by(schedule_, rank.number, *rank.next);
      if (given.exists() && !sends(rank, given)) return false;
      rank.has_computed = false;
      ++rank.next;
    }
    return true;
  }

  constexpr bool takes(Rank& rank, const StageMessage& needed) {
    Channel& from = channel(rank, needed);
    if (from.taken == from.count) return false;
    const Sent& next = from.sent[from.taken];
    if (next.message != needed) {
      fault_ = fault_at(rank, PipelineSchedule::Fault::Kind::order, next.message);
      return false;
    }
    rank.clock = std::max(rank.clock, next.time);
    ++from.taken;
    return true;
  }

  constexpr bool sends(const Rank& rank, const StageMessage& given) {
    Rank& receiver = ranks_[static_cast<std::size_t>(given.to % schedule_.ranks())];
    Channel& to = channel(receiver, given);
    const bool is_local = receiver.number == rank.number;
    if (!is_local && sends_ == Sends::one_posted && to.count > to.taken) return false;
    if (!is_local && sends_ == Sends::meeting && !awaits(receiver, given)) return false;
    to.sent[to.count++] = {given, rank.clock + (is_local ? 0 : costs_.message)};
    return true;
  }

  /// Whether the rank receives a message of the kind of `given`, and none of it was sent.
  constexpr bool awaits(Rank& rank, const StageMessage& given) const {
    if (rank.next == rank.end || rank.has_computed) return false;
    const StageMessage needed = needed_by(schedule_, rank.number, *rank.next);
    const Channel& from = channel(rank, given);
    return needed.exists() && needed.is_gradient() == given.is_gradient() &&
           from.taken == from.count;
  }

  constexpr void compute(Rank& rank, PipelineSchedule::Work work) {
    double time = 0;
    if (work == PipelineSchedule::Work::forward) time = costs_.forward;
    if (work == PipelineSchedule::Work::backward || work == PipelineSchedule::Work::backward_input)
      time += costs_.backward_input;
    if (work == PipelineSchedule::Work::backward ||
        work == PipelineSchedule::Work::backward_parameters)
      time += costs_.backward_parameters;
    rank.clock += time / schedule_.chunks();
    rank.busy += time / schedule_.chunks();
    if (work == PipelineSchedule::Work::forward) {
      ++rank.in_flight;
      rank.most_in_flight = std::max(rank.most_in_flight, rank.in_flight);
    } else if (work != PipelineSchedule::Work::backward_input) {
      --rank.in_flight;
    }
  }

  const PipelineSchedule& schedule_;
  Sends sends_;
  PipelineSchedule::Costs costs_;
  GrowingList<Sent> sent_;      // room for the messages to all ranks
  GrowingList<double> begins_;  // of the actions of all ranks
  GrowingList<Rank> ranks_{};
  PipelineSchedule::Fault fault_{};
};

/// What is wrong with a schedule before any message is sent.
constexpr PipelineSchedule::Fault fault_in_actions(const PipelineSchedule& schedule) {
  if (schedule.ranks() < 1 || schedule.chunks() < 1 || schedule.micro_batches() < 1)
    return {PipelineSchedule::Fault::Kind::no_sizes};
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const PipelineSchedule::Fault fault = RankActions(schedule, rank).fault();
    if (fault.kind != PipelineSchedule::Fault::Kind::none) return fault;
  }
  return {};
}

}  // namespace detail

/// What is wrong with a schedule on ranks with such sends; of the kind `none` if it runs to its
/// end. In constant expressions too:
///
///     static_assert(fault_in(gpipe(4, 8), Sends::buffered).kind ==
///                   PipelineSchedule::Fault::Kind::none);
constexpr PipelineSchedule::Fault fault_in(const PipelineSchedule& schedule, Sends sends) {
  const PipelineSchedule::Fault fault = detail::fault_in_actions(schedule);
  if (fault.kind != PipelineSchedule::Fault::Kind::none) return fault;
  return detail::ScheduleRun(schedule, sends, {}).run();
}

namespace detail {

/// Refuses a schedule that does not run to its end on ranks with such sends.
/// throws   argument_error that says on which rank, at which of its actions, what is wrong, and
///          what to do
constexpr void require_to_run(const PipelineSchedule& schedule, Sends sends) {
  const PipelineSchedule::Fault fault = fault_in(schedule, sends);
  if (fault.kind != PipelineSchedule::Fault::Kind::none) detail::refuse(schedule, fault);
}

}  // namespace detail

/// The times of a schedule on ranks whose sends are buffered. In constant expressions too:
///
///     static_assert(time_of(one_f_one_b(4, 8)).bubble < 0.28);  // (P-1) / (M+P-1) = 3/11
///
/// throws   argument_error for a schedule that does not run, as `require_to_run`
constexpr PipelineSchedule::Times time_of(const PipelineSchedule& schedule,
                                          const PipelineSchedule::Costs& costs = {}) {
  PipelineSchedule::Fault fault = detail::fault_in_actions(schedule);
  if (fault.kind != PipelineSchedule::Fault::Kind::none) detail::refuse(schedule, fault);
  detail::ScheduleRun run(schedule, Sends::buffered, costs);
  fault = run.run();
  if (fault.kind != PipelineSchedule::Fault::Kind::none) detail::refuse(schedule, fault);
  return run.times();
}

}  // namespace shardwise
