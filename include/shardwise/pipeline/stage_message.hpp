#pragma once
// What the stages of a pipeline send each other.

#include <string>

#include "shardwise/core/sentence.hpp"
#include "shardwise/pipeline/schedule.hpp"

namespace shardwise::detail {

/// What one stage of a pipeline gives a neighbouring one for a micro-batch: its output to the next
/// stage, or the gradient of its input to the stage before.
struct StageMessage {
  int from = 0;         ///< the stage that gives it
  int to = 0;           ///< the stage that needs it: `from` + 1, or for a gradient `from` - 1
  int micro_batch = 0;  ///< for which micro-batch

  /// Whether there is a message: none has two equal stages.
  constexpr bool exists() const { return from != to; }
  /// Whether it is a gradient.
  constexpr bool is_gradient() const { return to < from; }

  friend constexpr bool operator==(const StageMessage&, const StageMessage&) = default;
};

/// "the output of stage 0 for micro-batch 3".
inline std::string to_string(const StageMessage& message) {
  return sentence({message.is_gradient() ? "the gradient" : "the output", " of stage ",
                   message.from, " for micro-batch ", message.micro_batch});
}

///@{
/// What this action of this rank needs of another stage, and what it gives to another one; a
/// message that does not exist if nothing.
constexpr StageMessage needed_by(const PipelineSchedule& schedule, int rank,
                                 const PipelineSchedule::Action& action) {
  if (action.work == PipelineSchedule::Work::backward_parameters) return {};
  const int stage = schedule.stage(rank, action.chunk);
  const int from = action.work == PipelineSchedule::Work::forward ? stage - 1 : stage + 1;
  if (from < 0 || from == schedule.stages()) return {};
  return {from, stage, action.micro_batch};
}
constexpr StageMessage given_by(const PipelineSchedule& schedule, int rank,
                                const PipelineSchedule::Action& action) {
  if (action.work == PipelineSchedule::Work::backward_parameters) return {};
  const int stage = schedule.stage(rank, action.chunk);
  const int to = action.work == PipelineSchedule::Work::forward ? stage + 1 : stage - 1;
  if (to < 0 || to == schedule.stages()) return {};
  return {stage, to, action.micro_batch};
}
///@}

}  // namespace shardwise::detail
