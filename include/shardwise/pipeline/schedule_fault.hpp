#pragma once
// What is wrong with a pipeline schedule, in a sentence.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shardwise/core/error.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/stage_message.hpp"

namespace shardwise {

/// What is wrong with a pipeline schedule, see `fault_in`.
struct PipelineSchedule::Fault {
  /// The kinds of faults, in the order in which they are looked for.
  enum class Kind : std::uint8_t {
    none,
    no_sizes,     ///< no rank, or less than one chunk or micro-batch
    outside,      ///< an action for a micro-batch or chunk that does not exist
    out_of_turn,  ///< an action twice, or a backward before its forward
    missing,      ///< an action that a rank never does
    order,        ///< a rank receives another message than the one that the action needs
    deadlock      ///< ranks wait for each other
  };

  Kind kind = Kind::none;             ///< what kind it is
  int rank = 0;                       ///< on which rank
  std::size_t position = 0;           ///< where in the actions of that rank, counted from 0
  PipelineSchedule::Action action{};  ///< the action there; that which is missing
  detail::StageMessage other{};       ///< for `order`: the message that the rank receives

  friend constexpr bool operator==(const PipelineSchedule::Fault& fault, Kind expected) {
    return fault.kind == expected;
  }
};

namespace detail {

/// What is wrong, and what to do.
inline std::string complaint(const PipelineSchedule& schedule,
                             const PipelineSchedule::Fault& fault) {
  using Kind = PipelineSchedule::Fault::Kind;
  const StageMessage needed = needed_by(schedule, fault.rank, fault.action);
  switch (fault.kind) {
    case Kind::none:
      return "nothing is wrong";
    case Kind::no_sizes:
      return sentence({"there are ", schedule.ranks(), " ranks, ", schedule.micro_batches(),
                       " micro-batches and ", schedule.chunks(),
                       " chunks; each number is at least 1"});
    case Kind::outside:
      return sentence({"there are ", schedule.micro_batches(), " micro-batches and ",
                       schedule.chunks(), " chunks, counted from 0; name one of them"});
    case Kind::out_of_turn:
      return "the rank has already done this, or not yet what comes before it; each micro-batch "
             "goes through each chunk forward once, and then backward once, in one part or in both";
    case Kind::missing:
      return "the rank never does this; add it";
    case Kind::order:
      return sentence({"it needs ", needed, ", but the next message is ", fault.other,
                       "; let both ranks compute these micro-batches in one order"});
    case Kind::deadlock:
      return sentence(
          {needed.exists() ? sentence({"it needs ", needed}) : "it sends to another rank",
           ", and all ranks that have actions left wait for each other; move the "
           "action behind those that another rank waits for, or let sends wait less"});
  }
  return {};
}

/// Throws argument_error for a schedule with this fault.
[[noreturn, gnu::noinline, gnu::cold]] inline void refuse(const PipelineSchedule& schedule,
                                                          const PipelineSchedule::Fault& fault) {
  if (fault == PipelineSchedule::Fault::Kind::no_sizes)
    throw argument_error({"pipeline schedule: ", complaint(schedule, fault)});
  throw argument_error({"pipeline schedule: rank ", fault.rank, ", action ", fault.position, ", ",
                        fault.action, ": ", complaint(schedule, fault)});
}

/// Looks for actions that do not fit the sizes, and for such that are twice, too early or missing
/// on one rank.
class RankActions {
 public:
  constexpr RankActions(const PipelineSchedule& schedule, int rank)
      : schedule_(schedule),
        rank_(rank),
        done_(GrowingList<Done>::of_size(schedule.batches_in_chunks())) {}

  constexpr PipelineSchedule::Fault fault() {
    using Kind = PipelineSchedule::Fault::Kind;
    const std::span<const PipelineSchedule::Action> actions = schedule_.of(rank_);
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const PipelineSchedule::Action& action = actions[i];
      if (action.chunk < 0 || action.chunk >= schedule_.chunks() || action.micro_batch < 0 ||
          action.micro_batch >= schedule_.micro_batches())
        return {Kind::outside, rank_, i, action};
      Done& done = at(action.chunk, action.micro_batch);
      if (done != before(action.work)) return {Kind::out_of_turn, rank_, i, action};
      done = behind(action.work);
    }
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk)
      for (int micro_batch = 0; micro_batch < schedule_.micro_batches(); ++micro_batch)
        if (const Done done = at(chunk, micro_batch); done != Done::all)
          return {Kind::missing, rank_, actions.size(), {next(done), micro_batch, chunk}};
    return {};
  }

 private:
  enum class Done : std::uint8_t { nothing, forward, input, all };

  constexpr Done& at(int chunk, int micro_batch) {
    return done_[schedule_.number(chunk, micro_batch)];
  }

  static constexpr Done before(PipelineSchedule::Work work) {
    constexpr Done done[] = {Done::nothing, Done::forward, Done::forward, Done::input};
    return done[static_cast<std::size_t>(work)];
  }
  static constexpr Done behind(PipelineSchedule::Work work) {
    constexpr Done done[] = {Done::forward, Done::all, Done::input, Done::all};
    return done[static_cast<std::size_t>(work)];
  }
  static constexpr PipelineSchedule::Work next(Done done) {
    constexpr PipelineSchedule::Work works[] = {PipelineSchedule::Work::forward,
                                                PipelineSchedule::Work::backward,
                                                PipelineSchedule::Work::backward_parameters};
    return works[static_cast<std::size_t>(done)];
  }

  const PipelineSchedule& schedule_;
  int rank_;
  GrowingList<Done> done_;  // of each micro-batch in each chunk
};

}  // namespace detail

}  // namespace shardwise
