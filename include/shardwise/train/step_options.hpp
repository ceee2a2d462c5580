#pragma once
// The options and the result of a training step.

#include <optional>

#include "shardwise/comm/given_options.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/train/clip.hpp"
#include "shardwise/train/loss_scaler.hpp"
#include "shardwise/train/losses.hpp"
#include "shardwise/train/update_rule.hpp"

namespace shardwise {

/// Options of a step besides forward, backward and update. The same on every rank.
struct StepOptions {
  std::optional<double> clip_norm{};  ///< the largest allowed norm of all gradients
  Norm norm = Norm::euclidean;        ///< which norm that is
  LossScaler* scaler = nullptr;       ///< each rank's own, which outlives the step

  /// Calls f(name, value) for each option that is alike on all ranks.
  template <class F>
  void visit_options(F&& f) const {
    if (clip_norm) {
      f("clip_norm", *clip_norm);
      f("norm", norm == Norm::euclidean ? "euclidean" : "infinity");
    }
    if (scaler != nullptr) f("loss_scale", scale());
  }

  /// The scaler's scale, and 1 without a scaler.
  double scale() const { return scaler == nullptr ? 1 : scaler->scale(); }
};

namespace detail {

/// The options of a step that all ranks must have alike.
template <class Context, class Rule, class Loss>
GivenOptions options_of(Run<Context>& run, const Rule& rule, const StepOptions& step,
                        const Loss& loss) {
  GivenOptions options;
  add_rule(options, rule);
  add_options(options, step);
  options.add("sums_meanwhile", run.options.sums_meanwhile);
  add_loss(options, run, loss);
  return options;
}

}  // namespace detail

/// The result of a step.
struct StepEnd {
  bool skipped = false;          ///< whether gradients overflowed with a loss scale
  std::optional<double> norm{};  ///< of the gradients before clipping, if the step clips
};

}  // namespace shardwise
