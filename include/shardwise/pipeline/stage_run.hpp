#pragma once
// One step of a schedule on one stage of a pipeline.

#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/pipeline/batch_segments.hpp"
#include "shardwise/pipeline/event_order.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/pipeline/stage_messages.hpp"
#include "shardwise/train/given_alike.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/step.hpp"

namespace shardwise::detail {

/// Runs the actions of one stage in one step.
template <class Stage, class Rule, class Inputs>
class StageRun {
  using M = typename Stage::model_type;
  using T = typename M::dtype;
  using OutputGradient = duals_t<typename M::output_layout>;

 public:
  /// Begins the step of the stage's model.
  StageRun(Stage& stage, Optimizer<Rule, M>& optimizer, const Inputs& inputs)
      : stage_(stage), inputs_(inputs), step_(optimizer, inputs.samples, inputs.options) {
    for (UnderWay& flight : flights_) flight = {};
  }

  StageRun(const StageRun&) = delete;
  StageRun& operator=(const StageRun&) = delete;

  void run(const StageEvent& event) {
    const auto batch = static_cast<std::size_t>(event.action.micro_batch);
    const bool is_forward = event.action.work == PipelineSchedule::Work::forward;
    switch (event.kind) {
      case StageEvent::Kind::receive:
        return is_forward ? receive_input(batch) : receive_gradient(batch);
      case StageEvent::Kind::compute:
        return is_forward ? forward(batch) : backward(event.action.work, flight_of(batch));
      case StageEvent::Kind::send:
        return is_forward ? send_output(batch) : send_gradient(batch);
    }
  }

  ///@{
  /// In a step that looks for what is not finite: runs a micro-batch forward; looks at its input
  /// and at each layer if this is stage number `stage`, which ends the step; forgets the batch.
  void forward_only(std::size_t batch) {
    receive_input(batch);
    forward(batch);
    if constexpr (!Stage::is_last) send_output(batch);
  }
  void find_non_finite(std::size_t batch, std::size_t stage) try {
    if (stage != Stage::number) return;
    const std::size_t number = flight_of(batch);
    model().find_non_finite(input(flights_[number]), Flight{number});
  } catch (const numeric_error& e) {
    throw numeric_error({"pipeline: in micro-batch ", batch, " on stage ", stage,
                         ", whose ranks are counted from 0, ", e.what()});
  }
  void forget(std::size_t batch) {
    const std::size_t number = flight_of(batch);
    model().discard_batch(Flight{number});
    flights_[number] = {};
  }
  ///@}

  /// After all actions: waits for the sums that are under way. Ranks of the stage compare no more
  /// what they were given.
  void end_sums() {
    model().run().step.given_to_all = {};
    if (traffic_ != nullptr) traffic_->end_last_batch();
  }

  /// The step of the model.
  Step<M, Rule>& step() { return step_; }

  /// The sum of the losses of the micro-batches on the last stage, else 0.
  double loss() const { return loss_; }

 private:
  using UnderWay = MicroBatchUnderWay<M>;

  M& model() { return stage_.model(); }

  void receive_input([[maybe_unused]] std::size_t batch) {
    if constexpr (!Stage::is_first) {
      UnderWay& flight = flights_[begun_flight(batch)];
      flight.input = {model().run().pool,
                      stage_.shape_from_before(shapes_of_each(inputs_.x[batch])), stage_.place()};
      messages_.receive(flight.input.writable().span(), -1, batch, Phase::forward);
    }
  }

  void forward(std::size_t batch) {
    const std::size_t number = Stage::is_first ? begun_flight(batch) : flight_of(batch);
    UnderWay& flight = flights_[number];
    step_.set_batch(samples_of(inputs_.x[batch]));
    if (compares_given(model().run())) note_given_of_stage(batch, flight);
    const auto y = model().forward(input(flight), {.flight = Flight{number},
                                                   .segments = segments_of(inputs_.segments, batch),
                                                   .rows_of = global_shapes(inputs_.x[batch])[0]});
    if constexpr (Stage::is_last) {
      auto& run = model().run();
      const auto here = in_phase<Phase::loss>(run);
      const std::size_t size = samples_of(inputs_.x[batch]);
      loss_ += loss_of(run, y, inputs_.targets[batch], inputs_.loss, {size, inputs_.samples},
                       flight.gradient);
    } else {
      flight.output = y.span();
    }
  }

  /// The ranks of one stage compare what they were given, up to its last backward: those of other
  /// stages, with which it then sums, have other layers.
  void note_given_of_stage([[maybe_unused]] std::size_t batch, UnderWay& flight) {
    if constexpr (Stage::is_last) {
      note_given(model(), input(flight), inputs_.targets[batch]);
    } else {
      note_given(model(), input(flight), std::tuple{});
    }
  }

  typename M::input_view input(UnderWay& flight) {
    const auto& x = inputs_.x[flight.number];
    if constexpr (Stage::is_first) {
      return stage_.input_of(x);
    } else {
      return stage_.input_of(x, flight.input.view());
    }
  }

  void send_output(std::size_t batch) {
    messages_.send(flights_[flight_of(batch)].output, 1, batch, Phase::forward);
  }

  /// The gradient of the stage's output.
  void receive_gradient([[maybe_unused]] std::size_t batch) {
    if constexpr (!Stage::is_last) {
      UnderWay& flight = flights_[flight_of(batch)];
      const Shape y =
          model().layers().output_shape(stage_.input_shape(shapes_of_each(inputs_.x[batch])));
      flight.dy = Value<T, OutputGradient>(model().run().pool, y, stage_.place());
      messages_.receive(flight.dy.writable().span(), 1, batch, Phase::backward);
    }
  }

  void backward(PipelineSchedule::Work work, std::size_t number) {
    UnderWay& flight = flights_[number];
    if (work != PipelineSchedule::Work::backward_input && ++ended_ == inputs_.x.size() &&
        traffic_ != nullptr)
      traffic_->begin_last_batch(step_.shares().are_cut);
    if (work == PipelineSchedule::Work::backward_parameters) {
      model().backward_parameters(Flight{number});
    } else {
      step_.set_batch(samples_of(inputs_.x[flight.number]));
      if constexpr (Stage::is_last)
        flight.dy = scaled<T>(model().run(), std::move(flight.gradient), inputs_.options.scale());
      go_back(work, number);
    }
    if (work != PipelineSchedule::Work::backward_input) flight = {};
  }

  void go_back(PipelineSchedule::Work work, std::size_t number) {
    const auto go = [&] {
      const auto dy = views_of(flights_[number].dy);
      return work == PipelineSchedule::Work::backward ? model().backward(dy, Flight{number})
                                                      : model().backward_input(dy, Flight{number});
    };
    if constexpr (Stage::is_first) {
      go();
    } else {
      const auto dx = with_tensors(go(), [](const auto& before, const auto&...) { return before; });
      input_gradient_ = dx.span();
      if (work == PipelineSchedule::Work::backward)
        output_gradient_ = std::move(flights_[number].dy);
    }
  }

  void send_gradient(std::size_t batch) {
    messages_.send(input_gradient_, -1, batch, Phase::backward);
    output_gradient_ = {};
  }

  /// A flight for this micro-batch, which begins.
  std::size_t begun_flight(std::size_t batch) {
    const std::size_t number = free_flight();
    flights_[number].number = batch;
    flights_[number].is_free = false;
    return number;
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

  Stage& stage_;
  const Inputs& inputs_;
  StageMessages<Stage> messages_{stage_, inputs_.x.size()};
  Step<M, Rule> step_;
  Traffic* traffic_ = stage_.model().run().traffic;
  double loss_ = 0;
  std::span<const T> input_gradient_{};  // of the last backward, in memory of the model, or of
  values_t<T, OutputGradient> output_gradient_{};  // this if layers only reshape; until it is sent
  std::size_t ended_ = 0;  // micro-batches that need no further backward behind this action
  std::vector<UnderWay>& flights_ = stage_.under_way();
};

}  // namespace shardwise::detail
