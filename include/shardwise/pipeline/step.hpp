#pragma once
// One training step of a pipeline, by a schedule.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "shardwise/core/error.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/model/agree.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/pipeline/batch_segments.hpp"
#include "shardwise/pipeline/event_order.hpp"
#include "shardwise/pipeline/optimizer.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/pipeline/stage_run.hpp"
#include "shardwise/pipeline/step_checks.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/step.hpp"

namespace shardwise {

namespace detail {

/// Runs the events of a rank on its stages.
template <class... Runs>
void run_events(const GrowingList<StageEvent>& events, Runs&... stages) {
  for (const StageEvent& event : events) {
    int chunk = 0;
    ((chunk++ == event.action.chunk ? stages.run(event) : void()), ...);
  }
}

/// The sum over the stages of their losses so far, on every rank.
template <class Context, class Line, class... Runs>
double loss_of_stages(Run<Context>& run, Line& line, const Runs&... runs) {
  return all_reduced(
      run, line, [] { return std::string("loss of the last stage"); }, (runs.loss() + ...));
}

/// Throws on every rank what is not finite in a micro-batch that went forward in all stages, as the
/// first stage finds it. Returns if none does.
template <class Context, class... Runs>
[[gnu::cold]] void throw_non_finite(Run<Context>& run, std::size_t batch, Runs&... runs) {
  HostRanks all_ranks(run);
  for (std::size_t stage = 0; stage < run.stage.count; ++stage) {
    std::string found;
    try {
      (runs.find_non_finite(batch, stage), ...);
    } catch (const numeric_error& e) {  // on every rank of the stage
      found = e.what();
    }
    const int first = first_rank(all_ranks, !found.empty());
    if (first < all_ranks.size()) throw numeric_error(broadcast_text(all_ranks, found, first));
  }
}

/// Runs micro-batches forward again, up to the first that makes the loss one that is not finite,
/// and throws on every rank what is not finite in the first such stage.
template <class Context, class Line, class... Runs>
[[noreturn, gnu::cold]] void find_non_finite(Run<Context>& run, Line& line,
                                             std::size_t micro_batches, Runs&... runs) {
  double loss = 0;
  for (std::size_t batch = 0; batch < micro_batches; ++batch) {
    (runs.forward_only(batch), ...);
    loss = loss_of_stages(run, line, runs...);
    if (!std::isfinite(loss)) {
      throw_non_finite(run, batch, runs...);
      throw numeric_error(
          {"pipeline: the loss of micro-batch ", batch, " is ", loss,
           ", though every layer's output is finite. The outputs are too large for the loss: look "
           "at the target, and try a smaller learning rate"});
    }
    (runs.forget(batch), ...);
  }
  throw numeric_error({"pipeline: the loss of the step was not finite, but is ", loss,
                       " when the step runs again on the same micro-batches; look for a layer or a "
                       "loss that keeps state of its own"});
}

/// One step of the stages of a rank.
template <class Inputs, class Rule, class... Stages>
double train_stages(const PipelineSchedule& schedule, const Inputs& inputs,
                    std::tuple<Stages&...> stages,
                    std::tuple<Optimizer<Rule, typename Stages::model_type>&...> optimizers) {
  using First = std::tuple_element_t<0, std::tuple<Stages...>>;
  using Context = typename First::model_type::context;
  auto& run = std::get<0>(stages).model().run();
  auto& rank = std::get<0>(stages).of_rank();
  HostRanks all_ranks(run);
  const double rate = std::get<0>(optimizers).rule().learning_rate;
  on_all_ranks<collective_error>(all_ranks, [&] {
    require_all_stages(
        Runs<Context, sizeof...(Stages)>{{&std::get<Stages&>(stages).model().run()...}},
        "the step");
    (require_step(std::get<Stages&>(stages), schedule, inputs,
                  std::get<Optimizer<Rule, typename Stages::model_type>&>(optimizers), rate),
     ...);
  });
  require_same_batches(all_ranks, rank.all_ranks(), "the step of the pipeline", inputs.x,
                       inputs.segments,
                       options_of(run, std::get<0>(optimizers).rule(), inputs.options, inputs.loss),
                       &rank.checked());
  const auto run_step = [&](auto&& call) {
    return call(StageRun<Stages, Rule, Inputs>(
        std::get<Stages&>(stages),
        std::get<Optimizer<Rule, typename Stages::model_type>&>(optimizers), inputs)...);
  };
  const double loss = run_step([&](auto&&... runs) {
    run_events(rank.checked().events, runs...);
    const double sum = loss_of_stages(run, rank.line(), runs...);
    (runs.end_sums(), ...);
    if (std::isfinite(sum)) finish_steps(runs.step()...);
    return sum;
  });
  if (!std::isfinite(loss))
    run_step([&](auto&&... runs) { find_non_finite(run, rank.line(), inputs.x.size(), runs...); });
  return loss;
}

}  // namespace detail

/// One step of training of a pipeline on micro-batches, which may differ in size, in the order of
/// `schedule`; returns its loss, the same number on every rank. It is the step of one rank on all
/// micro-batches as one batch: gradients are sums over the micro-batches in the order of their
/// backwards. The norm that `options` clip is that of the gradients of all stages, and if those of
/// one stage overflow with a loss scale, all stages skip the step. Every rank of the mesh calls it
/// with the same schedule, shapes, loss, options and learning rate; the elements of `x` are read on
/// the first stage, those of `targets` on the last, and ranks of a stage compare them as those of a
/// Model do. Each rank gives weights of classes, in memory of its own backend, from which they are
/// read in each step. `segments` are the sequences of each micro-batch, as Model::forward says, the
/// same on every rank: a list for each, or none at all. With
/// `sums_meanwhile` the sums of a stage begin in the last action of the stage that completes the
/// gradients of a micro-batch: its last backward, or in a schedule with two parts its last
/// backward_parameters. There only sums of what layers write in this part begin; those of other
/// layers, such as norms and the block of a Recompute, follow it.
/// `time_of(schedule).most_in_flight` says how many flights the model of each stage gets, or the
/// models of all stages of a rank. `layer_losses()` of a stage's model are those of its own layers.
/// After the first steps with a schedule, steps allocate no memory.
/// sends    an all-reduce of one int32 and one of two int64 of each rank; along `pipeline` one
///          message for each micro-batch in each direction between neighbouring stages, an
///          all-reduce of one double, and the sums of gradients of parameters that stages share;
///          what `options` need; what the models of the stages send
/// throws   before anything else is sent, on every rank: collective_error if ranks were given other
///          steps, or, with the message of that rank, if another rank refuses its step;
///          argument_error for a schedule that the stages cannot run, as `require_to_run` says, and
///          for other numbers of ranks, micro-batches or lists of segments, an empty micro-batch,
///          segments that overlap or leave their sample,
///          another model's optimizer, stages of a rank whose optimizers have different learning
///          rates, and a step that is under way;
///          as the loss for the shape of a target. On every rank, at the end of the step,
///          numeric_error for a loss that is not finite: it names the micro-batch, the stage, and
///          what Model::find_non_finite finds there, for which the ranks send the forwards once
///          more, an all-reduce of a number for each micro-batch and each stage, and a text;
///          parameters and optimizer are then as before, other state of layers, such as running
///          statistics, is not, and the program may go on. As `Step`: the run then ends, because
///          the other stages wait for the messages of this one
///@{
template <class Stage, class Target, class Chosen, class Rule>
double train_pipeline_step(Stage& stage, const PipelineSchedule& schedule,
                           const std::vector<typename Stage::input_view>& x,
                           const std::vector<Target>& targets, const Chosen& loss,
                           Optimizer<Rule, typename Stage::model_type>& optimizer,
                           const StepOptions& options = {},
                           std::span<const std::vector<Segment>> segments = {}) {
  return detail::train_stages(schedule,
                              detail::PipelineStepInputs{x, targets, loss, options, segments},
                              std::tie(stage), std::tie(optimizer));
}
template <class... Stages, class Target, class Chosen, class Rule>
double train_pipeline_step(PipelineChunks<Stages...>& chunks, const PipelineSchedule& schedule,
                           const std::vector<typename PipelineChunks<Stages...>::input_view>& x,
                           const std::vector<Target>& targets, const Chosen& loss,
                           PipelineOptimizer<Rule, Stages...>& optimizer,
                           const StepOptions& options = {},
                           std::span<const std::vector<Segment>> segments = {}) {
  return detail::train_stages(schedule,
                              detail::PipelineStepInputs{x, targets, loss, options, segments},
                              std::tie(chunks.template stage<Stages>()...),
                              std::tie(optimizer.template stage<Stages>()...));
}
///@}

}  // namespace shardwise
