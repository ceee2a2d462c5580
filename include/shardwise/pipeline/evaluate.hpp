#pragma once
// Evaluation of several batches by a model or by the stages of a pipeline: outputs, losses and
// correct predictions.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/comm/given_options.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/model/agree.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/pipeline/batch_segments.hpp"
#include "shardwise/pipeline/schedule_run.hpp"
#include "shardwise/pipeline/stage_messages.hpp"
#include "shardwise/pipeline/step_checks.hpp"
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/evaluate_loss.hpp"
#include "shardwise/train/labels.hpp"
#include "shardwise/train/losses.hpp"

namespace shardwise {

namespace detail {

/// Calls f(shape of the model's output) for these inputs, where the rank has the last layer.
template <class Models, class F>
void with_output_shape(Models& models, const typename Models::input_view& x, F&& f) {
  if constexpr (OneModel<Models>) {
    f(models.layers().output_shape(shapes_of_each(x)));
  } else {
    models.for_each([&]<class Stage>([[maybe_unused]] Stage& stage) {
      if constexpr (Stage::is_last)
        f(stage.model().layers().output_shape(stage.input_shape(shapes_of_each(x))));
    });
  }
}

/// Throws argument_error for another number of targets than of batches. Calls check(output shape,
/// target) for each batch where the rank has the last layer.
template <class Models, class Target, class Check>
void require_targets(Models& models, const std::vector<typename Models::input_view>& x,
                     const std::vector<Target>& targets, Check&& check) {
  if (x.size() != targets.size())
    throw argument_error({"evaluation: ", x.size(), " inputs and ", targets.size(),
                          " targets were given; give one of each for each batch"});
  for (std::size_t i = 0; i < x.size(); ++i)
    with_output_shape(models, x[i], [&](const auto& output) { check(output, targets[i]); });
}

/// Runs batch `number` forward in one stage, and calls f(model, number, output) on the last one.
template <class Stage, class F>
void evaluate_stage(Stage& stage, const std::vector<typename Stage::input_view>& x,
                    BatchSegments segments, std::size_t number, [[maybe_unused]] F& f) {
  using M = typename Stage::model_type;
  M& model = stage.model();
  StageMessages messages(stage, x.size());
  const EvaluateOptions options{.segments = segments_of(segments, number),
                                .rows_of = global_shapes(x[number])[0]};
  [[maybe_unused]] ValueFromBefore<M> in{};  // its memory may be the output's
  const auto output = [&] {
    if constexpr (Stage::is_first) {
      return model.evaluate(stage.input_of(x[number]), options);
    } else {
      in = {model.run().pool, stage.shape_from_before(shapes_of_each(x[number])), stage.place()};
      messages.receive(in.writable().span(), -1, number, Phase::evaluate);
      return model.evaluate(stage.input_of(x[number], in.view()), options);
    }
  }();
  if constexpr (Stage::is_last) {
    f(model, number, output);
  } else {
    messages.send(output.span(), 1, number, Phase::evaluate);
  }
}

/// Lets the first stage be at most one turn ahead of the last one, so that few outputs are under
/// way, however many batches there are. Called at the beginning and at the end of each of `turns`
/// turns, where sends are buffered.
template <class Rank>
void begin_turn(Rank& rank, std::size_t turn) {
  auto& line = rank.gradient_line();
  if (line.size() == 1 || line.rank() != 0 || turn < 2) return;
  std::uint8_t done = 0;
  line.receive(std::span(&done, 1), line.size() - 1, static_cast<int>(turn - 2));
}
template <class Rank>
void end_turn(Rank& rank, std::size_t turn, std::size_t turns) {
  auto& line = rank.gradient_line();
  if (line.size() == 1 || line.rank() + 1 != line.size() || turn + 2 >= turns) return;
  const std::uint8_t done = 1;
  line.send(std::span(&done, 1), 0, static_cast<int>(turn));
}

/// Runs all batches forward in the stages, and calls f(model, number of the batch, output) on the
/// last one. A rank with several stages takes a batch for each rank through one stage, and then
/// through the next one, so that no rank waits: a turn. If sends meet their receives, it takes one
/// batch at a time.
template <class Stages, class F>
void evaluate_stages(Stages& stages, const std::vector<typename Stages::input_view>& x,
                     BatchSegments segments, F&& f) {
  auto& rank = stages.of_rank();
  constexpr bool are_buffered =
      sends_of<std::remove_cvref_t<decltype(rank.all_ranks())>>() == Sends::buffered;
  const std::size_t together =
      are_buffered ? static_cast<std::size_t>(rank.line().size()) : std::size_t{1};
  const std::size_t turns = (x.size() + together - 1) / together;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    if constexpr (are_buffered) begin_turn(rank, turn);
    stages.for_each([&](auto& stage) {
      for (std::size_t i = turn * together; i < std::min((turn + 1) * together, x.size()); ++i)
        evaluate_stage(stage, x, segments, i, f);
    });
    if constexpr (are_buffered) end_turn(rank, turn, turns);
  }
}

/// Runs all batches forward, after `check` on each rank, with `options` that all ranks have, and
/// calls f(model, number of the batch, output) where the rank has the last layer.
template <class Models, class Check, class F>
void evaluate_batches(Models& models, const std::vector<typename Models::input_view>& x,
                      BatchSegments segments, const GivenOptions& options, Check&& check, F&& f) {
  const auto runs = runs_of(models);
  auto& ranks = runs.first().ranks_of_all_stages();
  HostRanks host(runs.first());
  on_all_ranks<collective_error>(host, [&] {
    require_all_stages(runs, "evaluation");
    require_segments(runs.first().pool, segments, x);
    if constexpr (!OneModel<Models>)
      models.for_each([&](auto& stage) {
        for (const auto& one : x) stage.require_cut_alike(shapes_of_each(one));
      });
    check();
  });
  require_same_batches(host, ranks, "what they evaluate", x, segments, options);
  if constexpr (OneModel<Models>) {
    for (std::size_t i = 0; i < x.size(); ++i)
      f(models, i, models.evaluate(x[i], {.segments = segments_of(segments, i)}));
  } else {
    evaluate_stages(models, x, segments, f);
  }
}

/// A number of the ranks that have the last layer, on every rank; others pass 0.
template <class Models, class Number>
Number from_last_stage(Models& models, Number number) {
  if constexpr (OneModel<Models>)
    return number;
  else
    return all_reduced(
        models.runs().first(), models.line(),
        [] { return std::string("result of the last stage"); }, number);
}

}  // namespace detail

/// Runs batches forward in evaluation, which saves nothing and drops nothing; they may differ in
/// size. `models` is a Model, or of a pipeline the PipelineStage or the PipelineChunks. Calls
/// f(number of the batch, output) for each batch on the ranks that have the last layer; the output
/// is a view that is valid during the call. f may call what these ranks call together. Each stage
/// goes on to the next batch while later ones compute; the first one is at most 2 P - 1 batches
/// ahead of the last one, for P ranks along `pipeline`. Every rank calls it, between two steps,
/// with the same shapes; the elements of `x` are read where the first layer is. `segments` are the
/// sequences of each batch, as Model::forward says, the same on every rank: a list for each, or
/// none at all.
/// sends    an all-reduce of one int32 and one of two int64 of each rank; along `pipeline`
///          a message for each batch from each stage to the next, and where sends are buffered a
///          byte for each P batches from the last rank to the first; Model::evaluate
/// throws   before anything else is sent, on every rank: collective_error if ranks were given
///          batches of other sizes or other segments, argument_error for another number of lists
///          than of batches and for segments that overlap or leave their sample; as
///          Model::evaluate, and what f throws: in a pipeline the run then ends, because other
///          stages wait
template <class Models, class F>
void for_each_output(Models& models, const std::vector<typename Models::input_view>& x, F&& f,
                     std::span<const std::vector<Segment>> segments = {}) {
  detail::evaluate_batches(
      models, x, segments, {}, [] {},
      [&](auto&, std::size_t number, const auto& output) { f(number, output); });
}

/// The loss of all batches together in evaluation, as if they were one; the same number on every
/// rank. The elements of `targets` are read where the last layer is. 0 for no batches. A loss that
/// leaves out or weighs labels needs its `counted`, of all batches.
/// sends    as for_each_output; `plan_loss` where the last layer is; of a pipeline an all-reduce of
///          one double
/// throws   as for_each_output; before anything else is sent, on every rank: collective_error if
///          ranks were given other losses, argument_error for another number of targets than of
///          inputs, and as the loss for the shape of a target
template <class Models, class Target, class Chosen>
double evaluate_loss(Models& models, const std::vector<typename Models::input_view>& x,
                     const std::vector<Target>& targets, const Chosen& loss,
                     std::span<const std::vector<Segment>> segments = {}) {
  static_assert(detail::must_be_loss<Chosen, detail::losses_in<Chosen>>());
  std::size_t samples = 0;
  for (const auto& one : x) samples += detail::samples_of(one);
  detail::GivenOptions options;
  detail::add_loss(options, detail::runs_of(models).first(), loss);
  double sum = 0;
  detail::evaluate_batches(
      models, x, segments, options,
      [&] {
        detail::require_targets(models, x, targets, [&](const auto& output, const Target& target) {
          detail::require_target(loss, output, target);
        });
      },
      [&](auto& model, std::size_t i, const auto& output) {
        sum += detail::evaluated_part_of_output(model, output, targets[i], loss,
                                                {detail::samples_of(x[i]), samples});
      });
  return detail::from_last_stage(models, sum);
}

/// The number of rows of all batches whose label has one of the k largest logits, in evaluation;
/// the same number on every rank. As `count_top_k` of one batch, with the layouts that it takes.
/// sends    as for_each_output; where the last layer is as count_top_k of one batch; of a pipeline
///          an all-reduce of one int64
/// throws   as for_each_output and count_top_k of one batch; before anything else is sent, on every
///          rank: collective_error if k differs, argument_error for another number of labels than
///          of inputs, shape_error for labels of another shape
template <class Models, class Labels>
std::size_t count_top_k(Models& models, const std::vector<typename Models::input_view>& x,
                        const std::vector<Labels>& labels, std::size_t k,
                        std::span<const std::vector<Segment>> segments = {}) {
  detail::GivenOptions options;
  options.add("k", k);
  std::int64_t count = 0;
  detail::evaluate_batches(
      models, x, segments, options,
      [&] {
        detail::require_targets(models, x, labels, [&](const Shape& output, const Labels& one) {
          detail::check_label_shape(output, one.global());
          detail::check_k(k, output.back().extent());
        });
      },
      [&](auto& model, std::size_t i, const auto& output) {
        count +=
            static_cast<std::int64_t>(detail::count_top_k_of_output(model, output, labels[i], k));
      });
  return static_cast<std::size_t>(detail::from_last_stage(models, count));
}

/// The number of rows of all batches whose largest logit is the label's: `count_top_k` with k = 1.
template <class Models, class Labels>
std::size_t count_correct(Models& models, const std::vector<typename Models::input_view>& x,
                          const std::vector<Labels>& labels,
                          std::span<const std::vector<Segment>> segments = {}) {
  return count_top_k(models, x, labels, 1, segments);
}

}  // namespace shardwise
