#pragma once
// What is looked at before a step of a pipeline: the schedule, the micro-batches, and whether all
// ranks were given the same.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/comm/given_options.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/model/agree.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/pipeline/batch_segments.hpp"
#include "shardwise/pipeline/event_order.hpp"
#include "shardwise/pipeline/rank.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/schedule_run.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/train/losses.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/step.hpp"

namespace shardwise::detail {

/// What a rank is given for a step of a pipeline.
template <class Input, class Target, class Chosen>
struct PipelineStepInputs {
  PipelineStepInputs(const std::vector<Input>& inputs, const std::vector<Target>& given,
                     const Chosen& chosen, const StepOptions& step, BatchSegments of_batches)
      : x(inputs), targets(given), loss(chosen), options(step), segments(of_batches) {
    for (const Input& one : x) samples += samples_of(one);
  }

  const std::vector<Input>& x;
  const std::vector<Target>& targets;
  const Chosen& loss;
  StepOptions options;
  BatchSegments segments;
  std::size_t samples = 0;  ///< of all micro-batches
};

/// "2 x [batch 5, feature 6], 1 x [batch 4, feature 6]": the inputs of batches, in runs of equal
/// ones.
template <class Input>
[[gnu::cold]] std::string batches_text(const std::vector<Input>& x) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < x.size(); first = last) {
    const std::string of_run = shapes_text(shapes_of_each(x[first]));
    while (last < x.size() && shapes_text(shapes_of_each(x[last])) == of_run) ++last;
    append(text, {text.empty() ? "" : ", ", last - first, " x ", of_run});
  }
  return text.empty() ? "none" : text;
}

/// "F0 F1 B0 B1 | F0 B0 F1 B1": what each rank does, I and W being the two parts of a backward;
/// behind a letter the micro-batch, and of several chunks "/" and the chunk.
[[gnu::cold]] inline std::string schedule_text(const PipelineSchedule& schedule) {
  std::string text;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    if (rank > 0) text += " |";
    for (const PipelineSchedule::Action& action : schedule.of(rank)) {
      append(text, {text.empty() ? "" : " ",
                    std::string_view("FBIW").substr(static_cast<std::size_t>(action.work), 1),
                    action.micro_batch});
      if (schedule.chunks() > 1) append(text, {"/", action.chunk});
    }
  }
  return text;
}

/// A hash of the shapes of batches.
template <class Input>
std::uint32_t digest(const std::vector<Input>& x) {
  std::uint32_t hash = 0;
  for (const Input& one : x) hash = mixed(hash, digest(shapes_of_each(one)));
  return hash;
}

/// A hash of a schedule.
inline std::uint32_t digest(const PipelineSchedule& schedule) {
  std::uint32_t hash = mixed(static_cast<std::uint32_t>(schedule.micro_batches()),
                             static_cast<std::uint32_t>(schedule.chunks()));
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    hash = mixed(hash, static_cast<std::uint32_t>(rank));
    for (const PipelineSchedule::Action& action : schedule.of(rank)) {
      hash = mixed(hash, static_cast<std::uint32_t>(action.work));
      hash = mixed(hash, static_cast<std::uint32_t>(action.micro_batch));
      hash = mixed(hash, static_cast<std::uint32_t>(action.chunk));
    }
  }
  return hash;
}

/// Throws collective_error on all ranks, which were given unlike batches, segments, options or, for
/// a step, schedules, with the values of all that differs. A collective.
template <class Ranks, class Input>
[[noreturn, gnu::cold]] void refuse_unlike_batches(Ranks& ranks, std::string_view what,
                                                   const std::vector<Input>& x,
                                                   BatchSegments segments,
                                                   const GivenOptions& options,
                                                   const PipelineSchedule* of_step) {
  std::string lines = sentence({of_step == nullptr ? "batches " : "micro-batches ", batches_text(x),
                                "\nsegments ", segments_text(segments), "\n", options.lines()});
  if (of_step != nullptr)  // the longest one, which may be cut off
    append(lines, {"schedule ", schedule_text(*of_step), "\n"});
  refuse_unlike(ranks, what, OptionsText(lines, options.are_more()));
}

/// Does that if their hashes differ. `host` are the same ranks, for numbers of the host. A
/// collective.
template <class Host, class Ranks, class Input>
void require_same_batches(Host& host, Ranks& ranks, std::string_view what,
                          const std::vector<Input>& x, BatchSegments segments,
                          const GivenOptions& options, const CheckedSchedule* of_step = nullptr) {
  const std::uint32_t of_schedule = of_step == nullptr ? 0 : of_step->digest;
  const std::uint64_t batches = mixed(digest(x), digest(segments));
  if (!same_on_all_ranks(host, batches << 32 | mixed(of_schedule, options.hash())))
    refuse_unlike_batches(ranks, what, x, segments, options,
                          of_step == nullptr ? nullptr : &of_step->schedule);
}

/// How ranks of the type C send: messages that are work of a device may meet their receives.
template <class C>
constexpr Sends sends_of() {
  return TakesDeviceMemory<C> ? Sends::meeting : Sends::buffered;
}

/// Throws argument_error for a schedule that so many ranks with so many stages each cannot run. One
/// that runs with buffered sends runs with all, in the order of `events_of`.
inline void require_schedule(const PipelineSchedule& schedule, int ranks, int stages) {
  require_to_run(schedule, Sends::buffered);
  const auto each = [](int count) { return count == 1 ? " stage each" : " stages each"; };
  if (schedule.ranks() != ranks || schedule.chunks() != stages)
    throw argument_error({"pipeline: the schedule is for ", schedule.ranks(), " ranks with ",
                          schedule.chunks(), each(schedule.chunks()), ", but there are ", ranks,
                          " ranks with ", stages, each(stages), "; make the schedule for these"});
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int> next(static_cast<std::size_t>(stages));
    for (const PipelineSchedule::Action& action : schedule.of(rank)) {
      if (action.work != PipelineSchedule::Work::forward) continue;
      int& expected = next[static_cast<std::size_t>(action.chunk)];
      if (action.micro_batch != expected++)
        throw argument_error({"pipeline: in the schedule, rank ", rank,
                              " goes forward with micro-batch ", action.micro_batch, " before ",
                              expected - 1,
                              "; random numbers follow from the order of forwards, so let it be "
                              "that of the micro-batches"});
    }
  }
}

/// Does that for a schedule which the rank has not found good before.
template <class Ranks>
void require_good(PipelineRank<Ranks>& rank, const PipelineSchedule& schedule) {
  if (schedule.ranks() > 0 && rank.checked().schedule == schedule) return;
  require_schedule(schedule, rank.line().size(), static_cast<int>(rank.stages()));
  rank.checked() = {schedule, digest(schedule),
                    events_of(schedule, rank.line().rank(), sends_of<Ranks>())};
}

/// Throws argument_error for other numbers of inputs and targets than of micro-batches.
inline void require_micro_batches(const PipelineSchedule& schedule, std::size_t inputs,
                                  std::size_t targets) {
  const auto micro_batches = static_cast<std::size_t>(schedule.micro_batches());
  if (inputs != micro_batches || targets != micro_batches)
    throw argument_error({"pipeline: the schedule is for ", micro_batches, " micro-batches, but ",
                          inputs, " inputs and ", targets,
                          " targets were given; give one of each for each micro-batch"});
}

/// Throws argument_error for the optimizer of a stage that has another learning rate than that of
/// the rank's first stage.
inline void require_learning_rate(double rate, double of_first) {
  if (rate == of_first) return;
  throw argument_error(
      {"pipeline: the optimizers of two stages of this rank have the learning rates ", of_first,
       " and ", rate,
       ": all stages of a pipeline have one; set it by PipelineOptimizer::set_learning_rate"});
}

/// Throws what is wrong with a step, as far as this rank sees it before it sends anything.
template <class Stage, class Inputs, class Rule>
void require_step(Stage& stage, const PipelineSchedule& schedule, const Inputs& inputs,
                  const Optimizer<Rule, typename Stage::model_type>& optimizer,
                  double learning_rate) {
  require_own(stage.model(), optimizer, "train_pipeline_step");
  require_learning_rate(optimizer.rule().learning_rate, learning_rate);
  require_between_steps(stage.model(), "train_pipeline_step");
  require_good(stage.of_rank(), schedule);
  const auto& x = inputs.x;
  require_micro_batches(schedule, x.size(), inputs.targets.size());
  require_segments(stage.model().run().pool, inputs.segments, x);
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (samples_of(x[k]) == 0)
      throw argument_error({"pipeline: micro-batch ", k, " has no samples; leave it out"});
    stage.require_cut_alike(shapes_of_each(x[k]));
    if constexpr (Stage::is_last)
      require_target(inputs.loss,
                     stage.model().layers().output_shape(stage.input_shape(shapes_of_each(x[k]))),
                     inputs.targets[k]);
  }
}

}  // namespace shardwise::detail
