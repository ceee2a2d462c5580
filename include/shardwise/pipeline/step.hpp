#pragma once
// One training step of a pipeline, by a schedule.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/model/agree.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/schedule_run.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/train/loss.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/step.hpp"

namespace shardwise {

namespace detail {

/// What a rank was given for a step of a pipeline.
struct GivenPipelineStep {
  std::uint64_t samples;
  std::uint32_t micro_batches;
  std::uint32_t sizes;     // a hash
  std::uint32_t schedule;  // a hash

  friend bool operator==(const GivenPipelineStep&, const GivenPipelineStep&) = default;
  friend std::string to_string(const GivenPipelineStep& given) {
    return sentence({given.samples, " samples in ", given.micro_batches,
                     " micro-batches, whose sizes have the hash ", given.sizes,
                     ", by a schedule with the hash ", given.schedule});
  }
  /// A hash of it.
  friend std::uint64_t digest(const GivenPipelineStep& given) {
    const auto samples = static_cast<std::uint32_t>(given.samples);
    return std::uint64_t{mixed(samples, given.micro_batches)} << 32 |
           mixed(given.sizes, given.schedule);
  }
};

/// A hash of the sizes of micro-batches.
template <class Input>
std::uint32_t digest(const std::vector<Input>& x) {
  std::uint32_t hash = 0;
  for (const Input& one : x)
    hash = mixed(mixed(hash, static_cast<std::uint32_t>(samples_of(one))),
                 static_cast<std::uint32_t>(one.global().elements()));
  return hash;
}

/// A hash of a schedule.
inline std::uint32_t digest(const PipelineSchedule& schedule) {
  std::uint32_t hash = mixed(static_cast<std::uint32_t>(schedule.micro_batches()),
                             static_cast<std::uint32_t>(schedule.chunks()));
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    hash = mixed(hash, static_cast<std::uint32_t>(rank));
    for (const PipelineAction& action : schedule.of(rank)) {
      hash = mixed(hash, static_cast<std::uint32_t>(action.work));
      hash = mixed(hash, static_cast<std::uint32_t>(action.micro_batch));
      hash = mixed(hash, static_cast<std::uint32_t>(action.chunk));
    }
  }
  return hash;
}

/// How ranks of the type C send: messages that are work of a device may meet their receives.
template <class C>
constexpr Sends sends_of() {
  return TakesDeviceMemory<C> ? Sends::meeting : Sends::buffered;
}

/// Throws argument_error for a schedule that stages on so many ranks cannot run.
inline void require_schedule(const PipelineSchedule& schedule, Sends sends, int ranks) {
  require_to_run(schedule, sends);
  if (schedule.ranks() != ranks || schedule.chunks() != 1)
    throw argument_error({"pipeline: the schedule is for ", schedule.ranks(), " ranks with ",
                          schedule.chunks(), schedule.chunks() == 1 ? " stage" : " stages",
                          " each, but there are ", ranks,
                          " ranks with one stage each; make the schedule for these"});
  for (int rank = 0; rank < ranks; ++rank) {
    int next = 0;
    for (const PipelineAction& action : schedule.of(rank)) {
      if (action.work == PipelineWork::forward && action.micro_batch != next++)
        throw argument_error({"pipeline: in the schedule, rank ", rank,
                              " goes forward with micro-batch ", action.micro_batch, " before ",
                              next - 1,
                              "; random numbers follow from the order of forwards, so let it be "
                              "that of the micro-batches"});
    }
  }
}

/// Does that for a schedule that is not `checked`, which it is then.
template <class Line>
void require_checked(CheckedSchedule& checked, const PipelineSchedule& schedule, const Line& line) {
  if (checked.schedule == schedule) return;
  require_schedule(schedule, sends_of<Line>(), line.size());
  checked = {schedule, digest(schedule)};
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

/// Throws what is wrong with a step, as far as this rank sees it before it sends anything.
template <class Stage, class Target, class Chosen, class Rule>
void require_step(Stage& stage, const PipelineSchedule& schedule,
                  const std::vector<typename Stage::input_view>& x,
                  const std::vector<Target>& targets, [[maybe_unused]] const Chosen& loss,
                  const Optimizer<Rule, typename Stage::model_type>& optimizer) {
  require_own(stage.model(), optimizer, "train_pipeline_step");
  require_between_steps(stage.model(), "train_pipeline_step");
  require_checked(stage.checked_schedule(), schedule, stage.line());
  require_micro_batches(schedule, x.size(), targets.size());
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (samples_of(x[k]) == 0)
      throw argument_error({"pipeline: micro-batch ", k, " has no samples; leave it out"});
    if constexpr (Stage::is_last)
      require_target(loss, stage.model().layers().output_shape(stage.input_shape(x[k].global())),
                     targets[k]);
  }
}

/// Runs one step of a schedule on one rank.
template <class Stage, class Target, class Chosen, class Rule>
class PipelineRun {
  using M = typename Stage::model_type;
  using T = typename M::dtype;
  using Input = typename M::input_layout;
  using OutputGradient = duals_t<typename M::output_layout>;

 public:
  PipelineRun(Stage& stage, std::span<const typename Stage::input_view> x,
              std::span<const Target> targets, const Chosen& loss, std::size_t samples,
              double loss_scale, Step<M, Rule>& step)
      : stage_(stage),
        x_(x),
        targets_(targets),
        chosen_(loss),
        samples_(samples),
        loss_scale_(loss_scale),
        step_(step) {
    for (UnderWay& flight : flights_) flight = {};
  }

  void run(std::span<const PipelineAction> actions) {
    for (const PipelineAction& action : actions) {
      const auto batch = static_cast<std::size_t>(action.micro_batch);
      if (action.work == PipelineWork::forward) {
        forward(batch);
      } else {
        backward(action.work, flight_of(batch));
      }
    }
  }

  /// The sum of the losses of the micro-batches on the last stage, else 0.
  double loss() const { return loss_; }

 private:
  using UnderWay = MicroBatchUnderWay<M>;

  M& model() { return stage_.model(); }

  void forward(std::size_t batch) {
    const std::size_t number = free_flight();
    UnderWay& flight = flights_[number];
    flight.number = batch;
    flight.is_free = false;
    step_.set_batch(samples_of(x_[batch]));
    const auto y = model().forward(Flight{number}, input(flight));
    if constexpr (Stage::is_last) {
      auto& run = model().run();
      const auto here = in_phase<Phase::loss>(run);
      const std::size_t size = samples_of(x_[batch]);
      const double value =
          loss_of(run, y, targets_[batch], chosen_, {size, samples_}, flight.gradient, false);
      if (!std::isfinite(value))
        throw numeric_error({"pipeline: the loss of micro-batch ", batch, " is ", value,
                             "; try a smaller learning rate, or one stage, which names the layer"});
      loss_ += value;
    } else {
      send(y.span(), 1, batch, Phase::forward);
    }
  }

  typename M::input_view input(UnderWay& flight) {
    if constexpr (Stage::is_first) {
      return x_[flight.number];
    } else {
      flight.input = Value<T, Input>(
          model().run().pool, stage_.input_shape(x_[flight.number].global()), stage_.place());
      receive(flight.input.writable().span(), -1, flight.number, Phase::forward);
      return flight.input.view();
    }
  }

  void backward(PipelineWork work, std::size_t number) {
    UnderWay& flight = flights_[number];
    if (work == PipelineWork::backward_parameters) {
      model().backward_parameters(Flight{number});
    } else {
      step_.set_batch(samples_of(x_[flight.number]));
      take_gradient(flight);
      go_back(work, number);
    }
    if (work != PipelineWork::backward_input) flight = {};
  }

  /// The gradient of the stage's output.
  void take_gradient(UnderWay& flight) {
    if constexpr (Stage::is_last) {
      flight.dy = scaled<T>(model().run(), std::move(flight.gradient), loss_scale_);
    } else {
      const Shape& x = x_[flight.number].global();
      flight.dy = Value<T, OutputGradient>(
          model().run().pool, model().layers().output_shape(stage_.input_shape(x)), stage_.place());
      receive(flight.dy.writable().span(), 1, flight.number, Phase::backward);
    }
  }

  void go_back(PipelineWork work, std::size_t number) {
    const auto go = [&] {
      const auto dy = views_of(flights_[number].dy);
      return work == PipelineWork::backward ? model().backward(Flight{number}, dy)
                                            : model().backward_input(Flight{number}, dy);
    };
    if constexpr (Stage::is_first) {
      go();
    } else {
      send(go().span(), -1, flights_[number].number, Phase::backward);
    }
  }

  /// A flight that keeps no micro-batch; the model gets one more if there is none.
  std::size_t free_flight() {
    std::size_t number = 0;
    while (number < flights_.size() && !flights_[number].is_free) ++number;
    if (number == flights_.size()) {
      flights_.emplace_back();
      model().reserve_flights(flights_.size());
    }
    return number;
  }
  std::size_t flight_of(std::size_t batch) const {
    std::size_t number = 0;
    while (flights_[number].is_free || flights_[number].number != batch) ++number;
    return number;
  }

  MarkedPhase marked(std::size_t batch, Phase phase) {
    return MarkedPhase(static_cast<std::uint32_t>(model().step()),
                       static_cast<std::uint16_t>(batch), phase, {});
  }
  void send(std::span<const T> numbers, int stages, std::size_t batch, Phase phase) {
    const auto here = marked(batch, phase);
    auto& line = stage_.line();
    line.send(numbers, line.rank() + stages, static_cast<int>(batch));
  }
  void receive(std::span<T> numbers, int stages, std::size_t batch, Phase phase) {
    const auto here = marked(batch, phase);
    auto& line = stage_.line();
    line.receive(numbers, line.rank() + stages, static_cast<int>(batch));
  }

  Stage& stage_;
  std::span<const typename Stage::input_view> x_;
  std::span<const Target> targets_;
  const Chosen& chosen_;
  std::size_t samples_;
  double loss_scale_;
  Step<M, Rule>& step_;
  double loss_ = 0;
  std::vector<UnderWay>& flights_ = stage_.under_way();
};

}  // namespace detail

/// One step of training of a pipeline on micro-batches, which may differ in size, in the order of
/// `schedule`; returns its loss, the same number on every rank. It is the step of one rank on all
/// micro-batches as one batch: gradients are sums over the micro-batches in the order of their
/// backwards. The norm that `options` clip is that of the gradients of all stages, and if those of
/// one stage overflow with a loss scale, all stages skip the step. Every rank of the mesh calls it
/// with the same schedule, the same shapes and the same options; the elements of `x` are read on
/// the first stage, those of `targets` on the last, and are not compared.
/// `time_of(schedule).most_in_flight` says how many flights the model of each stage gets.
/// `layer_losses()` of a stage's model are those of its own layers. After the first steps with a
/// schedule, steps allocate no memory.
/// sends    an all-reduce of one int32 and one of two int64 of each rank; along `pipeline` one
///          message for each micro-batch in each direction between neighbouring stages, an
///          all-reduce of one double, and the sums of gradients of parameters that stages share;
///          what `options` need; what the models of the stages send
/// throws   before anything else is sent, on every rank: collective_error if ranks were given other
///          steps, or, with the message of that rank, if another rank refuses its step;
///          argument_error for a schedule that the stages cannot run, as `require_to_run` says, and
///          for other numbers of ranks or micro-batches, an empty micro-batch, another model's
///          optimizer, and a step that is under way; as the loss for the shape of a target. Later
///          numeric_error for a loss that is not finite; as `Step`: parameters are then as before,
///          and the run ends, because the other stages wait for the messages of this one
template <class Stage, class Target, class Chosen, class Rule>
double train_pipeline_step(Stage& stage, const PipelineSchedule& schedule,
                           const std::vector<typename Stage::input_view>& x,
                           const std::vector<Target>& targets, const Chosen& loss,
                           Optimizer<Rule, typename Stage::model_type>& optimizer,
                           const StepOptions& options = {}) {
  HostRanks all_ranks(stage.model().run(), stage.all_ranks());
  detail::on_all_ranks<collective_error>(
      all_ranks, [&] { detail::require_step(stage, schedule, x, targets, loss, optimizer); });
  std::size_t samples = 0;
  for (const auto& one : x) samples += detail::samples_of(one);
  const detail::GivenPipelineStep given{samples, static_cast<std::uint32_t>(x.size()),
                                        detail::digest(x), stage.checked_schedule().digest};
  if (!detail::same_on_all_ranks(all_ranks, digest(given)))
    detail::require_agreed(gathered(stage.all_ranks(), given), "the step of the pipeline");
  Step step(optimizer, samples, options);
  detail::PipelineRun<Stage, Target, Chosen, Rule> run(stage, x, targets, loss, samples,
                                                       options.scale(), step);
  run.run(schedule.of(stage.line().rank()));
  const double sum = detail::all_reduced(
      stage.model().run(), stage.line(), [] { return std::string("loss of the last stage"); },
      run.loss());
  step.finish();
  return sum;
}

}  // namespace shardwise
