#pragma once
// A training step that is recorded once and launched as a whole.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "shardwise/backend/recording.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/train/given_alike.hpp"
#include "shardwise/train/losses.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/recorded_loss.hpp"
#include "shardwise/train/recorded_results.hpp"
#include "shardwise/train/step.hpp"

namespace shardwise {

namespace detail {

/// Whether collectives of C run as work of a backend, without agreement of ranks on the host.
template <class C>
concept RecordableRanks = AloneByType<C> || requires {
  requires C::can_be_recorded;
};

/// The error for models whose steps cannot be recorded.
template <class M>
consteval bool must_record() {
  static_assert(RecordingBackend<typename M::backend_type>,
                "a RecordedStep is for backends that record their work, like Cuda. Call "
                "train_step with others.");
  static_assert(RecordableRanks<typename M::communicator>,
                "a RecordedStep is for one rank, or for ranks over NCCL: the collectives of other "
                "ranks meet on the host, which no recording holds. Call train_step.");
  static_assert(!M::use::input_gradient,
                "a RecordedStep shows nobody the gradient of the input: make the Model with "
                "Train.");
  return true;
}

/// Replaces the recording of backends that cannot record, so that there is only one error.
struct NoRecording {
  template <class B, class Work>
  NoRecording(B&, const Work&) {}
  void launch() {}
};

template <class B>
struct recording_of {
  using type = NoRecording;
};
template <RecordingBackend B>
struct recording_of<B> {
  using type = typename B::Recording;
};

/// Calls launch(), which enqueues recorded collectives of `ranks` and other work; a watchdog of the
/// ranks is told.
template <class C, class Launch>
void launch_collectives([[maybe_unused]] C& ranks, Launch&& launch) {
  if constexpr (requires { ranks.launch_recorded(launch); })
    ranks.launch_recorded(launch);
  else
    launch();
}

}  // namespace detail

/// Repeats `train_step` on the same x and target, whose contents change. The step is recorded once
/// and then launched as a whole, which is faster if kernels are short.
///
///     RecordedStep step(model, optimizer, CrossEntropy{}, x.view(), labels.view());
///     for (...) {
///       backend.to_device(...);              // the next batch, into the memory of x and labels
///       optimizer.set_learning_rate(...);    // if it changes
///       step.launch();
///     }
///     double last = step.loss();             // waits for the device; not needed in each step
///
/// A launch gives the same bits as train_step, including dropout's masks and the optimizer's steps.
/// The ranks may be a mesh, the optimizer may have any Keep, and a model with several outputs takes
/// tuples of losses and targets, all as train_step.
/// `optimizer.steps()` and `model.step()` count it at once. The first two launches call train_step,
/// which makes plans and takes memory, and they throw as train_step does; then the step is
/// recorded. Between launches a program may run, change and save the model, while no step of it is
/// under way. Call `loss()` before a save or another step, since it subtracts steps that changed
/// nothing from the counts. A RecordedStep keeps the memory of its recording until its end. Model,
/// optimizer, x and target must outlive it. It is for one rank, or for ranks over NCCL, which all
/// launch; destroy it before their `close()`, which waits for it. If NCCL's watchdog ends a launch,
/// the parameters are undefined.
///
/// Gradients are clipped according to the options. Loss scalers, several batches and batches with
/// segments cannot be recorded: use a Step for them. Your own loss can be recorded if it returns a
/// sum of its frame divided by a number.
template <class M, class Rule, class Chosen, class Target>
class RecordedStep {
  static_assert(detail::must_be_loss<Chosen, detail::tensors_of<typename M::output_layout>>() &&
                detail::must_record<M>());

 public:
  /// x and target are in the device's memory. Runs nothing on the device yet.
  /// throws   argument_error for another model's optimizer, a loss scaler, `sums_meanwhile`, a
  ///          stage of a pipeline, and a norm to clip to that is not above 0; memory_error
  RecordedStep(M& model, Optimizer<Rule, M>& optimizer, const Chosen& loss,
               typename M::input_view x, const Target& target, const StepOptions& options = {})
      : model_(model),
        optimizer_(optimizer),
        loss_(loss),
        x_(x),
        target_(target),
        options_(options),
        memory_(model.run().pool.take(sizeof(Steps))) {
    detail::require_own(model, optimizer, "RecordedStep");
    if (options.scaler != nullptr) {
      throw argument_error(
          "RecordedStep: a loss scaler decides on the host what becomes of a step: call "
          "train_step with it, or train in a dtype that needs none, like bf16");
    }
    if (model.run().options.sums_meanwhile && !cuts_gradients(model.keep())) {
      throw argument_error(
          "RecordedStep: a recording has its own order of calls: make the model without "
          "sums_meanwhile, or call train_step with it");
    }
    if (model.stage().count > 1) {
      throw argument_error(
          "RecordedStep: this model is a stage of a pipeline, whose steps send to other stages: "
          "call train_pipeline_step with it");
    }
    if (options.clip_norm) detail::check_clip_norm(*options.clip_norm, "RecordedStep");
    start_again();
  }
  RecordedStep(const RecordedStep&) = delete;
  RecordedStep& operator=(const RecordedStep&) = delete;

  /// One step on the current contents of x and target. A collective.
  /// sends    as train_step
  /// throws   argument_error as Step when it begins; in the first two launches as train_step,
  ///          before anything is changed; after the second step backend_error if it cannot be
  ///          recorded; where ranks compare their calls, collective_error in later launches for
  ///          different learning rates: then nothing is changed
  void launch() {
    auto& run = model_.run();
    detail::require_between_steps(model_, "RecordedStep");
    if (plain_steps_ < steps_before_recording) {
      known_ = plain_step();
      if (++plain_steps_ == steps_before_recording) record();  // the pool has a step's memory now
      return;
    }
    run.parameters.update_copies(run.backend, run.version);
    detail::GivenOptions options;
    detail::GivenAlike given;
    if (run.all_ranks.size() > 1) {
      detail::add_rule(options, optimizer_.rule());
      given = {.options = options.hash(), .all_options = &options};
    }
    const detail::MarkedPhase compared(static_cast<std::uint32_t>(run.step.number), 0, Phase::none,
                                       given);
    const detail::SetMeanwhile computed(run.step.gradients,
                                        GradientState::whole);  // by the recording
    optimizer_.begin_update();
    detail::launch_collectives(model_.ranks(), [this] { recording_->launch(); });
    optimizer_.end_update();
    ++launched_;
    known_.reset();
  }

  /// The loss of the last step, the same number on every rank. Waits for it.
  /// throws   argument_error before the first launch; numeric_error if the loss or the norm of the
  ///          gradients is not finite in the last step, or in an earlier one since the last call.
  ///          Parameters, optimizer and step numbers are then as before that step, and the next
  ///          launch continues from there; other state of layers, such as running statistics, is
  ///          not restored
  double loss() { return last().loss; }

  /// The norm of the gradients of the last step before clipping, if the options clip them. Waits
  /// and throws as `loss`.
  std::optional<double> norm() { return last().norm; }

 private:
  using Steps = detail::RecordedResults;
  using T = typename M::dtype;
  using Recording = typename detail::recording_of<typename M::backend_type>::type;
  static constexpr int steps_before_recording = 2;

  /// The results of a step that the host has.
  struct Known {
    double loss;
    std::optional<double> norm;
  };

  Known plain_step() {
    Step step(optimizer_, detail::samples_of(x_), options_);
    const double loss = step.add(x_, target_, loss_);
    return {loss, step.finish().norm};
  }

  const Known& last() {
    if (known_) return *known_;
    if (launched_ == 0)
      throw argument_error("RecordedStep: there is no loss yet: launch a step first");
    Steps steps;
    detail::to_host(model_.backend(), there(), 1, &steps);
    if constexpr (requires { model_.ranks().check(); }) model_.ranks().check();
    if (steps.has_stopped) refuse(steps);
    known_ = Known{steps.loss, {}};
    if (options_.clip_norm) known_->norm = steps.norm;
    return *known_;
  }

  /// Subtracts the steps that changed nothing from the counts, and throws.
  [[noreturn]] void refuse(const Steps& steps) {
    const std::uint64_t undone = launched_ - steps.count;
    optimizer_.set_steps(optimizer_.steps() - undone);
    model_.set_step(model_.step() - undone);
    start_again();
    if (std::isfinite(steps.loss)) {
      throw numeric_error({"the norm of all gradients was ", steps.norm,
                           " in the first of the last ", undone,
                           " launches, and they changed nothing, though its loss was finite: "
                           "a gradient overflowed on its way back. Try a smaller learning rate"});
    }
    throw numeric_error({"the loss was ", steps.loss, " in the first of the last ", undone,
                         " launches, and they changed nothing. A label that is no class does that, "
                         "and an output that is too large: train_step says which, given the same "
                         "batch"});
  }

  Steps* there() const { return static_cast<Steps*>(memory_.data()); }

  void start_again() {
    detail::fill(model_.backend(), there(), 1, Steps{});
    launched_ = 0;
  }

  void record() {
    auto& run = model_.run();
    run.parameters.update_copies(run.backend, run.version);
    try {
      recording_.emplace(run.backend, [&] { step(); });
    } catch (...) {
      model_.discard_step();
      --plain_steps_;  // the next launch is a plain step again, and then tries to record again
      throw;
    }
    model_.discard_step();
    kept_ = run.pool.keep_free();
  }

  /// The work that is recorded.
  void step() {
    put_gradients();
    const detail::Runs<typename M::context, 1> runs{{&model_.run()}, {&optimizer_.shares()}};
    detail::settle(runs);
    if (options_.clip_norm) clip(runs);
    optimizer_.update_values([this](std::size_t n, const auto& loop) {
      using Loop = std::remove_cvref_t<decltype(loop)>;
      model_.backend().for_each(n, detail::UnlessStopped<Loop>{there(), loop});
    });
  }

  void put_gradients() {
    detail::loss_gradient_t<M> gradient;
    put_loss(gradient);
    model_.backward(detail::views_of(detail::scaled<T>(model_.run(), std::move(gradient), 1)));
  }

  void put_loss(detail::loss_gradient_t<M>& gradient) {
    const std::size_t samples = detail::samples_of(x_);
    const auto prediction = model_.forward(x_);
    auto& run = model_.run();
    const auto here = detail::in_phase<Phase::loss>(run);
    const double* const loss = detail::put_loss_of(
        run, prediction, target_, loss_, {samples, samples}, gradient, &there()->computed);
    run.backend.for_each(1, detail::NoteLoss{loss, there()});
  }

  void clip(const detail::Runs<typename M::context, 1>& runs) {
    using G = typename M::gradient_dtype;
    auto& run = model_.run();
    run.parameters.collect(run.backend);
    const Buffer memory = run.pool.take(sizeof(double));
    double* const norm = static_cast<double*>(memory.data());
    detail::put_norms(runs, options_.norm, std::span(norm, 1));
    run.backend.for_each(1, detail::NoteNorm{norm, options_.norm, *options_.clip_norm, there()});
    const auto gradients = model_.gradients();
    run.backend.for_each(gradients.size(), detail::CutDown<G>{gradients.data(), there()});
  }

  M& model_;
  Optimizer<Rule, M>& optimizer_;
  Chosen loss_;
  typename M::input_view x_;
  Target target_;
  StepOptions options_;
  int plain_steps_ = 0;
  Buffer memory_;               // of the results of recorded steps
  std::uint64_t launched_ = 0;  // recorded steps since `memory_` was cleared
  std::optional<Known> known_;  // of the last step, if the host has read it
  Pool::Kept kept_;
  std::optional<Recording> recording_;
};

}  // namespace shardwise
