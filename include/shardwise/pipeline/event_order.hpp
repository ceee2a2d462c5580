#pragma once
// In which order a rank of a pipeline computes, sends and receives in a step.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "shardwise/core/growing_list.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/schedule_run.hpp"
#include "shardwise/pipeline/stage_message.hpp"

namespace shardwise::detail {

/// What a rank of a pipeline does in a step: an action, or one end of a message.
struct StageEvent {
  /// The kinds of events.
  enum class Kind : std::uint8_t {
    receive,  ///< what the action needs of another stage
    compute,  ///< the action
    send      ///< what the action gives to another stage
  };

  Kind kind = Kind::compute;          ///< what kind it is
  PipelineSchedule::Action action{};  ///< the action of this rank

  friend constexpr bool operator==(const StageEvent&, const StageEvent&) = default;
};

/// When messages of a schedule pass from rank to rank if every forward and every part of a backward
/// takes the time 1: an output when its receiver needs it, and a gradient when it is computed.
class MessageTimes {
 public:
  /// Of a schedule that runs with buffered sends.
  constexpr explicit MessageTimes(const PipelineSchedule& schedule)
      : schedule_(schedule),
        begins_(begins(schedule)),
        outputs_(GrowingList<double>::of_size(batches_in_stages())),
        gradients_(GrowingList<double>::of_size(batches_in_stages())) {
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      for (const PipelineSchedule::Action& action : schedule.of(rank)) {
        const std::size_t here = number(schedule.stage(rank, action.chunk), action.micro_batch);
        const double begin = begin_of(action);
        if (action.work == PipelineSchedule::Work::forward) outputs_[here] = begin;
        if (action.work == PipelineSchedule::Work::backward_input) gradients_[here] = begin + 1;
        if (action.work == PipelineSchedule::Work::backward) gradients_[here] = begin + 2;
      }
  }

  /// When this action, an entry of the schedule, begins.
  constexpr double begin_of(const PipelineSchedule::Action& action) const {
    return begins_[static_cast<std::size_t>(&action - schedule_.of(0).data())];
  }
  constexpr double of(const StageMessage& message) const {
    return message.is_gradient() ? gradients_[number(message.from, message.micro_batch)]
                                 : outputs_[number(message.to, message.micro_batch)];
  }

 private:
  static constexpr GrowingList<double> begins(const PipelineSchedule& schedule) {
    const double time = schedule.chunks();  // costs are those of all chunks together
    ScheduleRun run(schedule, Sends::buffered, {time, time, time});
    run.run();
    return run.begins();
  }
  constexpr std::size_t batches_in_stages() const {
    return static_cast<std::size_t>(schedule_.ranks()) * schedule_.batches_in_chunks();
  }
  constexpr std::size_t number(int stage, int micro_batch) const {
    return schedule_.number(stage, micro_batch);
  }

  const PipelineSchedule& schedule_;
  GrowingList<double> begins_;
  GrowingList<double> outputs_;    // by the stage that needs it
  GrowingList<double> gradients_;  // by the stage that gives it
};

/// An event and its place among the events of all ranks.
struct PlacedEvent {
  double time = 0;
  bool is_action = false;
  StageMessage message{};
  StageEvent event{};

  friend constexpr bool operator<(const PlacedEvent& a, const PlacedEvent& b) {
    const auto place = [](const PlacedEvent& e) {
      const bool is_received = e.event.kind == StageEvent::Kind::receive;
      return std::tuple(e.time, e.is_action, e.message.from, e.message.to, e.message.micro_batch,
                        is_received);  // one rank may have both ends, if it has all stages
    };
    return place(a) < place(b);
  }
};

/// What a rank does in a step of a schedule that runs with buffered sends, in order.
///
/// Where sends are `buffered` or `one_posted`, a rank receives what an action needs right before
/// it, and sends what it gives right behind it. Where they are `meeting`, two ranks that so send
/// to each other wait without end. Then all messages and actions have one order in the whole
/// pipeline, and each rank follows it for those in which it takes part. So of the messages that
/// have not passed, the first one has both its ends at it, and ranks can never wait for each other.
/// The order is that of the times of messages if every forward and every part of a backward takes
/// the same time: an output passes when its receiver needs it, until when the flight of the sender
/// keeps it, and a gradient when it is computed, into the flight of its receiver. So no memory is
/// needed beyond that of flights, but for an output's gradient until that of the input is sent.
/// With these times steps of the known schedules of one chunk take as long as with buffered sends;
/// a sender may wait for its receiver to end an action with others.
///
/// source   "Question about send/recv scheduling", the issue 784 of NVIDIA/nccl
constexpr GrowingList<StageEvent> events_of(const PipelineSchedule& schedule, int rank,
                                            Sends sends) {
  using Kind = StageEvent::Kind;
  GrowingList<StageEvent> events;
  if (sends != Sends::meeting) {
    for (const PipelineSchedule::Action& action : schedule.of(rank)) {
      if (needed_by(schedule, rank, action).exists()) events.add({Kind::receive, action});
      events.add({Kind::compute, action});
      if (given_by(schedule, rank, action).exists()) events.add({Kind::send, action});
    }
    return events;
  }
  const MessageTimes times(schedule);
  GrowingList<PlacedEvent> placed;
  for (const PipelineSchedule::Action& action : schedule.of(rank)) {
    placed.add({times.begin_of(action), true, {}, {Kind::compute, action}});
    for (const auto& [kind, message] : {std::pair{Kind::receive, needed_by(schedule, rank, action)},
                                        std::pair{Kind::send, given_by(schedule, rank, action)}})
      if (message.exists()) placed.add({times.of(message), false, message, {kind, action}});
  }
  std::sort(placed.begin(), placed.end());
  for (const PlacedEvent& one : placed) events.add(one.event);
  return events;
}

}  // namespace shardwise::detail
