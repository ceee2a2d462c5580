#pragma once
// One training step: forward, loss, backward, and new parameters.

#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/model/settle.hpp"
#include "shardwise/model/shares.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/train/clip.hpp"
#include "shardwise/train/given_alike.hpp"
#include "shardwise/train/loss.hpp"
#include "shardwise/train/loss_scaler.hpp"
#include "shardwise/train/losses.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/step_options.hpp"

namespace shardwise {

namespace detail {

/// Settles the gradients of all models that the rank trains together, in their shares, and scales
/// them as the options say.
template <class Context, std::size_t N>
StepEnd settle_and_clip(const Runs<Context, N>& runs, const StepOptions& options) {
  StepEnd end;
  settle(runs);
  if (options.scaler != nullptr) {
    bool here = false;
    for (std::size_t i = 0; i < N; ++i) {
      Run<Context>& run = *runs.of[i];
      if (take_out_scale(run, *runs.shares[i], run.step.under_way->loss_scale)) here = true;
    }
    end.skipped = overflowed_anywhere(runs.first(), *runs.shares[0], here);
  }
  if (options.clip_norm && !end.skipped) {
    check_clip_norm(*options.clip_norm, "clip_gradients");
    end.norm = clip_all(runs, *options.clip_norm, options.norm);
  }
  if (options.scaler != nullptr) options.scaler->update(end.skipped);
  return end;
}

/// Ends the steps of all models that the rank trains together, which have the same options: see
/// Step::finish.
template <class First, class... Others>
StepEnd finish_steps(First& first, Others&... others) {
  using AllRuns = Runs<typename First::context, sizeof...(Others) + 1>;
  const AllRuns runs{{&first.open_run("finish"), &others.open_run("finish")...},
                     {&first.shares(), &others.shares()...}};
  first.require_ready();
  (others.require_ready(), ...);
  const InPhases<Phase::finish, typename First::context, sizeof...(Others) + 1> here(runs);
  StepEnd end;
  try {
    end = settle_and_clip(runs, first.options());
  } catch (...) {
    first.discard();
    (others.discard(), ...);
    throw;
  }
  first.end(end);
  (others.end(end), ...);
  return end;
}

/// Throws argument_error while a batch in another flight than flight 0 may still go backward: the
/// step would be without its gradients. Flight 0 is that of Step itself.
template <class M>
void require_no_other_batches(const M& model, const char* who) {
  if (!model.has_other_batches_under_way()) return;
  throw argument_error({who,
                        ": a batch in another flight than flight 0 went forward and may still go "
                        "backward. Run its backward before, or discard it by the model's "
                        "discard_step(), which also discards the step"});
}

/// Throws argument_error while another step of the model is under way, or such a batch.
template <class M>
void require_between_steps(M& model, const char* who) {
  if (model.run().step.gradients != GradientState::none || model.run().step.under_way != nullptr) {
    throw argument_error({who,
                          ": another step of this model is under way. End that one before, by "
                          "finish() or discard() of its Step, or by the model's next_step() or "
                          "discard_step() if the program called backward itself"});
  }
  require_no_other_batches(model, who);
}

/// Throws argument_error for a batch of `samples` samples that exceeds the samples of its step.
void require_room(std::size_t before, std::size_t samples, std::size_t of_step);

/// Throws argument_error unless all samples of a step, and at least one, were added.
void require_complete(std::size_t added, std::size_t of_step);

/// `gradient`, or each of a std::tuple of them, times `scale` in T, rounded once.
template <class T, class Context, class A, Layout L>
Value<T, L> scaled(Run<Context>& run, Value<A, L> gradient, double scale) {
  const auto multiply = [&](Value<T, L>& result) {
    run.backend.for_each(
        result.view().size(),
        Scale<T, A>{gradient.view().data(), result.writable().data(), static_cast<A>(scale)});
  };
  if constexpr (std::same_as<T, A>) {
    if (scale != 1) multiply(gradient);
    return gradient;
  } else {
    Value<T, L> result(run.pool, gradient.global(), gradient.place());
    multiply(result);
    return result;
  }
}

template <class T, class Context, class... Values>
auto scaled(Run<Context>& run, std::tuple<Values...>&& gradients, double scale) {
  return std::apply(
      [&](auto&... one) { return std::tuple{scaled<T>(run, std::move(one), scale)...}; },
      gradients);
}

/// The result of `loss` for what a model gave, in the phase of losses; writes the gradient of the
/// model's output to `gradient`.
template <class M, class Target, class Chosen>
double loss_in_phase(M& model, const typename M::output_view& prediction, const Target& target,
                     const Chosen& loss, BatchInStep in_step, loss_gradient_t<M>& gradient) {
  const auto here = in_phase<Phase::loss>(model.run());
  return loss_of(model.run(), prediction, target, loss, in_step, gradient);
}

/// Returns the loss of one batch, and adds its gradients times `scale`.
template <class M, class Target, class Chosen>
double loss_and_gradients(M& model, const typename M::input_view& x, const Target& target,
                          const Chosen& loss, BatchInStep in_step, double scale,
                          std::span<const Segment> segments) {
  require_fitting_target(model, x, target, loss);
  if (compares_given(model.run())) note_given(model, x, target);
  loss_gradient_t<M> gradient;
  const double value = loss_in_phase(model, model.forward(x, {.segments = segments}), target, loss,
                                     in_step, gradient);
  if (!std::isfinite(value)) {
    model.find_non_finite(x);
    throw numeric_error({"the loss is ", value,
                         ", though every layer's output is finite. The outputs are too large for "
                         "the loss: look at the target, and try a smaller learning rate"});
  }
  model.backward(views_of(scaled<typename M::dtype>(model.run(), std::move(gradient), scale)));
  return value;
}

}  // namespace detail

/// One step of training, on one batch or on several, which may differ in size:
///
///     Step step(optimizer, 256);  // samples of all its batches
///     for (const auto& [x, labels] : parts) loss += step.add(x, labels, CrossEntropy{});
///     step.finish();
///
/// A step that does not end by `finish` is discarded, also after an error: parameters, optimizer
/// and the step number are as before it. A model has one Step at a time. Between batches a program
/// may evaluate the model and read its gradients; the model's `next_step` and `discard_step` end
/// the Step. Optimizer and model must outlive it. While it lives, the thread that made it is in a
/// call of the model: this thread calls its members and ends it. Every rank makes it and calls its
/// members, in the same order.
template <class M, class Rule>
class Step {
 public:
  /// Begins a step of `samples` samples over all ranks and batches.
  /// sends    nothing
  /// throws   argument_error while another step of the model is under way, or a batch in another
  ///          flight than flight 0
  Step(Optimizer<Rule, M>& optimizer, std::size_t samples, const StepOptions& options = {})
      : call_(optimizer.model().run().one_thread),
        optimizer_(optimizer),
        samples_(samples),
        options_(options),
        under_way_{options.scale()} {
    detail::require_between_steps(optimizer.model(), "Step");
    optimizer.model().run().step.under_way = &under_way_;
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() { discard(); }

  /// Adds the gradients of one batch, and returns its part of the step's loss, the same number on
  /// every rank. The step's loss, a mean or sum over all its samples, is the sum of these parts.
  /// `segments` are the sequences of the batch, see Model::forward.
  /// sends    the forward, loss and backward of `plan_step(model, x.global(), loss)`
  /// throws   argument_error for more samples than the step has, and after its end; numeric_error
  ///          if the loss is not finite, as Model::find_non_finite says; errors of layers and loss.
  ///          Each of them discards the step
  template <class Target, class Chosen>
  [[gnu::noinline]] double add(const typename M::input_view& x, const Target& target,
                               const Chosen& loss, std::span<const Segment> segments = {}) {
    static_assert(detail::must_be_loss<Chosen, detail::tensors_of<typename M::output_layout>>());
    M& model = open_model("add");
    detail::Traffic* const traffic = model.run().traffic;
    try {
      const std::size_t samples = detail::samples_of(x);
      detail::require_room(model.run().step.samples_backward, samples, samples_);
      set_batch(samples);
      if (detail::compares_given(model.run()))
        under_way_.options = detail::options_of(model.run(), optimizer_.rule(), options_, loss);
      if (traffic != nullptr && model.run().step.samples_backward + samples == samples_)
        traffic->begin_last_batch(shares().are_cut);
      const double value = detail::loss_and_gradients(model, x, target, loss, {samples, samples_},
                                                      under_way_.loss_scale, segments);
      if (traffic != nullptr) traffic->end_last_batch();
      return value;
    } catch (...) {
      discard();
      throw;
    }
  }

  /// For code that runs forward and backward itself: the losses of layers count from now on with
  /// the share of a batch of `samples` samples. `add` does this.
  void set_batch(std::size_t samples) {
    under_way_.batch_share = static_cast<double>(samples) / static_cast<double>(samples_);
  }

  /// Sums the gradients over the ranks, each rank those that its optimizer updates, and changes the
  /// parameters. With a scaler, a step whose gradients overflowed is skipped on all ranks: it is
  /// discarded, and the scale becomes smaller.
  /// sends    settle, finish and update of `plan_step` with the step's options and the optimizer's
  ///          Keep; a skipped step sends neither the norm nor the update
  /// throws   argument_error after its end, and while samples are missing or a batch in another
  ///          flight than flight 0 is under way: then the step continues;
  ///          numeric_error for a norm to clip that is not finite, and if the scale would become
  ///          too small: then the step is discarded; as train_step in the gather behind an update
  [[gnu::noinline]] StepEnd finish() { return detail::finish_steps(*this); }

  /// Discards the step; does nothing after its end.
  void discard() {
    if (is_under_way()) optimizer_.model().discard_step();
  }

  ///@{
  /// For `detail::finish_steps`.
  using context = typename M::context;
  auto& open_run(const char* who) const { return open_model(who).run(); }
  detail::Shares& shares() const { return optimizer_.shares(); }
  const StepOptions& options() const { return options_; }
  void require_ready() const {
    detail::require_no_other_batches(optimizer_.model(), "Step: finish()");
    detail::require_complete(optimizer_.model().run().step.samples_backward, samples_);
  }
  void end(const StepEnd& end) {
    if (end.skipped) {
      optimizer_.model().discard_step();
    } else {
      optimizer_.end_step();
    }
  }
  ///@}

 private:
  detail::OneThread::Call call_;  // so that no other thread runs the model in between

  bool is_under_way() const { return optimizer_.model().run().step.under_way == &under_way_; }

  M& open_model(const char* who) const {
    if (is_under_way()) return optimizer_.model();
    throw argument_error({"Step: ", who,
                          "() after the step's end: it was finished or discarded, "
                          "or forgotten because of an error. Begin another Step"});
  }

  Optimizer<Rule, M>& optimizer_;
  std::size_t samples_;
  StepOptions options_;
  detail::StepUnderWay under_way_;  // the model identifies the step by its address
};

/// One step on one batch; returns its loss, the same number on every rank. `segments` are the
/// sequences of the batch, see Model::forward. A collective.
/// sends    `plan_step(model, x.global(), loss, options, optimizer.keep())`
/// throws   as `Step`, and argument_error for another model's optimizer; parameters and optimizer
///          are then as before the step on every rank that throws. An error on only one rank
///          (memory, its backend) reaches the other ranks in their next call, and ends the run. One
///          that reaches them while they gather what an optimizer with shares has changed says
///          that parameters are then in between, and that a checkpoint is to be loaded
template <class M, class Target, class Chosen, class Rule>
double train_step(M& model, const typename M::input_view& x, const Target& target,
                  const Chosen& loss, Optimizer<Rule, M>& optimizer,
                  const StepOptions& options = {}, std::span<const Segment> segments = {}) {
  detail::require_own(model, optimizer, "train_step");
  Step step(optimizer, detail::samples_of(x), options);
  const double value = step.add(x, target, loss, segments);
  step.finish();
  return value;
}

///@{
/// The collectives of one training step of `model` with `loss` for inputs of shape `in`, by an
/// optimizer with this Keep; it is the model's if it is left out. With `sums_meanwhile`, on
/// ranks that begin collectives, those of `settle` over samples are made in the backward of the
/// last batch, in another order. Of a stage of a pipeline those of its own ranks, for one
/// micro-batch, as if it had the loss; what stages sum together is in `plan_stage_sums`.
template <class M, class Chosen>
Plan plan_step(const M& model, const typename M::input_shapes& in, const Chosen& loss,
               const StepOptions& options = {}) {
  return plan_step(model, in, loss, options, model.keep());
}
template <class M, class Chosen>
Plan plan_step(const M& model, const typename M::input_shapes& in, const Chosen& loss,
               const StepOptions& options, Keep keep) {
  Plan plan = model.plan(in, keep);
  plan.loss = plan_loss<typename M::ends::wanted>(loss, model.layers().output_shape(in),
                                                  dtype_v<typename M::dtype>, plan.sizes);
  const auto reduce = [&](std::size_t numbers, Dtype dtype, bool along_data) {
    const Collective entry = all_reduce(numbers, dtype);
    if (along_data && plan.sizes.data > 1) plan.finish.add(entry.over(MeshAxis::data));
    plan.finish.add(entry);
  };
  if (options.scaler != nullptr) reduce(1, Dtype::uint8, cuts_moments(keep));
  if (options.clip_norm) reduce(model.stage().count, Dtype::float64, true);
  return plan;
}
///@}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void require_room(std::size_t before, std::size_t samples, std::size_t of_step) {
  if (before + samples <= of_step) return;
  throw argument_error({"Step: this batch has ", samples, " samples after ", before,
                        " in this step, but all its batches together were said to have ", of_step,
                        ": begin the Step with the sum of its batches"});
}

SHARDWISE_INLINE void require_complete(std::size_t added, std::size_t of_step) {
  if (added == of_step && added > 0) return;
  throw argument_error({"Step: this step was said to have ", of_step,
                        " samples, but its batches had ", added,
                        ": its loss would be no mean. Add the batches that are missing, or "
                        "discard() it"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
