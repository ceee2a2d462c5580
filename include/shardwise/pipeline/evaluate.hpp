#pragma once
// Evaluation by the stages of a pipeline: outputs, losses and correct predictions.

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

/// Throws argument_error for another number of targets than of batches. Calls check(output shape,
/// target) for each batch on the last stage.
template <class Stages, class Target, class Check>
void require_targets(Stages& stages, const std::vector<typename Stages::input_view>& x,
                     const std::vector<Target>& targets, Check&& check) {
  if (x.size() != targets.size())
    throw argument_error({"pipeline: ", x.size(), " inputs and ", targets.size(),
                          " targets were given; give one of each for each batch"});
  stages.for_each([&]<class Stage>([[maybe_unused]] Stage& stage) {
    if constexpr (Stage::is_last)
      for (std::size_t i = 0; i < x.size(); ++i)
        check(stage.model().layers().output_shape(stage.input_shape(shapes_of_each(x[i]))),
              targets[i]);
  });
}

/// Runs batch `number` forward in one stage, and calls f(stage, number, output) on the last one.
template <class Stage, class F>
void evaluate_stage(Stage& stage, const std::vector<typename Stage::input_view>& x,
                    BatchSegments segments, std::size_t number, [[maybe_unused]] F& f) {
  using M = typename Stage::model_type;
  M& model = stage.model();
  StageMessages messages(stage, x.size());
  const SegmentsOf of_batch = segments_of(segments, number, x[number]);
  [[maybe_unused]] ValueFromBefore<M> in{};  // its memory may be the output's
  const auto output = [&] {
    if constexpr (Stage::is_first) {
      return model.evaluate(stage.input_of(x[number]), of_batch);
    } else {
      in = {model.run().pool, stage.shape_from_before(shapes_of_each(x[number])), stage.place()};
      messages.receive(in.writable().span(), -1, number, Phase::evaluate);
      return model.evaluate(stage.input_of(x[number], in.view()), of_batch);
    }
  }();
  if constexpr (Stage::is_last) {
    f(stage, number, output);
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

/// Runs all batches forward, after `check` on each rank, with `options` that all ranks have, and
/// calls f(stage, number of the batch, output) on the last stage. A rank with several stages takes
/// a batch for each rank through one stage, and then through the next one, so that no rank waits: a
/// turn. If sends meet their receives, it takes one batch at a time.
template <class Stages, class Check, class F>
void evaluate_stages(Stages& stages, const std::vector<typename Stages::input_view>& x,
                     BatchSegments segments, const GivenOptions& options, Check&& check, F&& f) {
  const auto runs = stages.runs();
  auto& rank = stages.of_rank();
  HostRanks all_ranks(runs.first(), rank.all_ranks());
  on_all_ranks<collective_error>(all_ranks, [&] {
    require_all_stages(runs, "evaluation");
    require_segments(runs.first().pool, segments, x);
    stages.for_each([&](auto& stage) {
      for (const auto& one : x) stage.require_cut_alike(shapes_of_each(one));
    });
    check();
  });
  require_same_batches(all_ranks, rank.all_ranks(), "what a pipeline evaluates", x, segments,
                       options);
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

/// A number of the last stage, on every rank; others pass 0.
template <class Stages, class Number>
Number from_last_stage(Stages& stages, Number number) {
  return all_reduced(
      stages.runs().first(), stages.line(), [] { return std::string("result of the last stage"); },
      number);
}

}  // namespace detail

/// Runs the stages of a pipeline forward on batches, which may differ in size, in evaluation: saves
/// nothing, drops nothing. `stages` is a PipelineStage, or PipelineChunks. Calls f(number of the
/// batch, output) for each batch on the ranks of the last stage; the output is a view that is valid
/// during the call. f may call what the ranks of the last stage call together. Each stage goes on
/// to the next batch while later ones compute; the first one is at most 2 P - 1 batches ahead of
/// the last one, for P ranks along `pipeline`. Every rank of the mesh calls it, between two steps,
/// with the same shapes; the elements of `x` are read on the first stage. `segments` are the
/// sequences of each batch, as Model::forward says, the same on every rank: a list for each, or
/// none at all.
/// sends    an all-reduce of one int32 and one of two int64 of each rank; along `pipeline`
///          a message for each batch from each stage to the next, and where sends are buffered a
///          byte for each P batches from the last rank to the first; Model::evaluate
/// throws   before anything else is sent, on every rank: collective_error if ranks were given
///          batches of other sizes or other segments, argument_error for another number of lists
///          than of batches and for segments that overlap or leave their sample; as
///          Model::evaluate, and what f throws: the run then ends, because other stages wait
template <class Stages, class F>
void evaluate_pipeline(Stages& stages, const std::vector<typename Stages::input_view>& x, F&& f,
                       std::span<const std::vector<Segment>> segments = {}) {
  detail::evaluate_stages(
      stages, x, segments, {}, [] {},
      [&](auto&, std::size_t number, const auto& output) { f(number, output); });
}

/// The loss of all batches together in evaluation, as if they were one; the same number on every
/// rank. The elements of `targets` are read on the last stage. 0 for no batches. As
/// `evaluate_loss` of several batches.
/// sends    as evaluate_pipeline; `loss_plan` on the last stage; an all-reduce of one double
/// throws   as evaluate_pipeline; before anything else is sent, on every rank: collective_error if
///          ranks were given other losses, argument_error for another number of targets than of
///          inputs, and as the loss for the shape of a target
template <class Stages, class Target, class Chosen>
double evaluate_pipeline_loss(Stages& stages, const std::vector<typename Stages::input_view>& x,
                              const std::vector<Target>& targets, const Chosen& loss,
                              std::span<const std::vector<Segment>> segments = {}) {
  std::size_t samples = 0;
  for (const auto& one : x) samples += detail::samples_of(one);
  detail::GivenOptions options;
  detail::add_loss(options, stages.runs().first(), loss);
  double sum = 0;
  detail::evaluate_stages(
      stages, x, segments, options,
      [&] {
        detail::require_targets(stages, x, targets, [&](const Shape& output, const Target& target) {
          detail::require_target(loss, output, target);
        });
      },
      [&](auto& stage, std::size_t i, const auto& output) {
        sum += detail::evaluated_part_of_output(stage.model(), output, targets[i], loss,
                                                {detail::samples_of(x[i]), samples});
      });
  return detail::from_last_stage(stages, sum);
}

/// The number of rows of all batches whose label has one of the k largest logits, in evaluation;
/// the same number on every rank. As `count_top_k`, with the layouts that it takes.
/// sends    as evaluate_pipeline; on the last stage as count_top_k; an all-reduce of one int64
/// throws   as evaluate_pipeline and count_top_k; before anything else is sent, on every rank:
///          collective_error if k differs, argument_error for another number of labels than of
///          inputs, shape_error for labels of another shape
template <class Stages, class Labels>
std::size_t count_pipeline_top_k(Stages& stages, const std::vector<typename Stages::input_view>& x,
                                 const std::vector<Labels>& labels, std::size_t k,
                                 std::span<const std::vector<Segment>> segments = {}) {
  detail::GivenOptions options;
  options.add("k", k);
  std::int64_t count = 0;
  detail::evaluate_stages(
      stages, x, segments, options,
      [&] {
        detail::require_targets(stages, x, labels, [&](const Shape& output, const Labels& one) {
          detail::check_label_shape(output, one.global());
          detail::check_k(k, output.back().extent());
        });
      },
      [&](auto& stage, std::size_t i, const auto& output) {
        count += static_cast<std::int64_t>(
            detail::count_top_k_of_output(stage.model(), output, labels[i], k));
      });
  return static_cast<std::size_t>(detail::from_last_stage(stages, count));
}

/// The number of rows whose largest logit is the label's: `count_pipeline_top_k` with k = 1.
template <class Stages, class Labels>
std::size_t count_pipeline_correct(Stages& stages,
                                   const std::vector<typename Stages::input_view>& x,
                                   const std::vector<Labels>& labels,
                                   std::span<const std::vector<Segment>> segments = {}) {
  return count_pipeline_top_k(stages, x, labels, 1, segments);
}

}  // namespace shardwise
