#pragma once
// One step of a schedule on one stage of a pipeline.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/pipeline/batch_segments.hpp"
#include "shardwise/pipeline/schedule.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/pipeline/stage_messages.hpp"
#include "shardwise/train/loss.hpp"
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
  ~StageRun() {
    if (inputs_.options.overlap != nullptr) inputs_.options.overlap->discard();
  }

  void run(const PipelineAction& action) {
    const auto batch = static_cast<std::size_t>(action.micro_batch);
    if (action.work == PipelineWork::forward) {
      forward(batch);
    } else {
      backward(action.work, flight_of(batch));
    }
  }

  /// The step of the model, after all actions.
  Step<M, Rule>& step() {
    if (inputs_.options.overlap != nullptr) inputs_.options.overlap->end();
    return step_;
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
    step_.set_batch(samples_of(inputs_.x[batch]));
    const auto y = model().forward(Flight{number}, input(flight),
                                   segments_of(inputs_.segments, batch, inputs_.x[batch]));
    if constexpr (Stage::is_last) {
      auto& run = model().run();
      const auto here = in_phase<Phase::loss>(run);
      const std::size_t size = samples_of(inputs_.x[batch]);
      const double value = loss_of(run, y, inputs_.targets[batch], inputs_.loss,
                                   {size, inputs_.samples}, flight.gradient);
      if (!std::isfinite(value))
        throw numeric_error({"pipeline: the loss of micro-batch ", batch, " is ", value,
                             "; try a smaller learning rate, or one stage, which names the layer"});
      loss_ += value;
    } else {
      messages_.send(y.span(), 1, batch, Phase::forward);
    }
  }

  typename M::input_view input(UnderWay& flight) {
    const auto& x = inputs_.x[flight.number];
    if constexpr (Stage::is_first) {
      return stage_.input_of(x);
    } else {
      flight.input = {model().run().pool, stage_.shape_from_before(shapes_of_each(x)),
                      stage_.place()};
      messages_.receive(flight.input.writable().span(), -1, flight.number, Phase::forward);
      return stage_.input_of(x, flight.input.view());
    }
  }

  void backward(PipelineWork work, std::size_t number) {
    UnderWay& flight = flights_[number];
    if (work != PipelineWork::backward_input && ++ended_ == inputs_.x.size() &&
        inputs_.options.overlap != nullptr)
      inputs_.options.overlap->begin(step_.shares());
    if (work == PipelineWork::backward_parameters) {
      model().backward_parameters(Flight{number});
    } else {
      step_.set_batch(samples_of(inputs_.x[flight.number]));
      take_gradient(flight);
      go_back(work, number);
    }
    if (work != PipelineWork::backward_input) flight = {};
  }

  /// The gradient of the stage's output.
  void take_gradient(UnderWay& flight) {
    if constexpr (Stage::is_last) {
      flight.dy = scaled<T>(model().run(), std::move(flight.gradient), inputs_.options.scale());
    } else {
      const Shape y = model().layers().output_shape(
          stage_.input_shape(shapes_of_each(inputs_.x[flight.number])));
      flight.dy = Value<T, OutputGradient>(model().run().pool, y, stage_.place());
      messages_.receive(flight.dy.writable().span(), 1, flight.number, Phase::backward);
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
      const auto dx = with_tensors(go(), [](const auto& before, const auto&...) { return before; });
      messages_.send(dx.span(), -1, flights_[number].number, Phase::backward);
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

  Stage& stage_;
  const Inputs& inputs_;
  StageMessages<Stage> messages_{stage_, inputs_.x.size()};
  Step<M, Rule> step_;
  double loss_ = 0;
  std::size_t ended_ = 0;  // micro-batches that need no further backward behind this action
  std::vector<UnderWay>& flights_ = stage_.under_way();
};

}  // namespace shardwise::detail
