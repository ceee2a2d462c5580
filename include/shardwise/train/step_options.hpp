#pragma once
// The options and the result of a training step, and the sums that it makes while it goes backward.

#include <optional>

#include "shardwise/comm/given_options.hpp"
#include "shardwise/model/meanwhile.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/shares.hpp"
#include "shardwise/train/clip.hpp"
#include "shardwise/train/loss_scaler.hpp"
#include "shardwise/train/losses.hpp"
#include "shardwise/train/update_rule.hpp"

namespace shardwise {

namespace detail {
class SumsMeanwhile;
}  // namespace detail

/// What the option `overlap` of a step is: the sums of one model, see OverlappedSums, or of several
/// that a rank trains together, see PipelineOverlappedSums.
class SumsOfModels {
 public:
  SumsOfModels() = default;
  SumsOfModels(const SumsOfModels&) = delete;
  SumsOfModels& operator=(const SumsOfModels&) = delete;
  virtual ~SumsOfModels() = default;

  /// Those of the model with this run; null if it is another model.
  virtual detail::SumsMeanwhile* of(const void* run) = 0;
};

namespace detail {

/// The sums of gradients over the ranks of a mesh that have other samples, made while the last
/// batch of a step goes backward. A `Step` calls these; see OverlappedSums.
class SumsMeanwhile : public SumsOfModels, public detail::GradientListener {
 public:
  /// Before the last batch of the step: each sum begins when the backward has written its
  /// gradients. If these shares are cut, each rank gets the sums of its own. They outlive the step.
  virtual void begin(detail::Shares& shares) = 0;
  /// After its backward: waits for all sums.
  virtual void end() = 0;
  /// In place of end(), if the step is discarded.
  virtual void discard() noexcept = 0;
};

}  // namespace detail

/// Options of a step besides forward, backward and update. The same on every rank.
struct StepOptions {
  std::optional<double> clip_norm{};  ///< the largest allowed norm of all gradients
  Norm norm = Norm::euclidean;        ///< which norm that is
  LossScaler* scaler = nullptr;       ///< each rank's own, which outlives the step
  /// To sum gradients over the ranks while backward goes on; each rank's own, which outlives the
  /// step. See OverlappedSums (train/overlapped_sums.hpp).
  SumsOfModels* overlap = nullptr;

  /// Calls f(name, value) for each option that is alike on all ranks.
  template <class F>
  void visit_options(F&& f) const {
    if (clip_norm) {
      f("clip_norm", *clip_norm);
      f("norm", norm == Norm::euclidean ? "euclidean" : "infinity");
    }
    if (scaler != nullptr) f("loss_scale", scale());
    f("sums_overlap", overlap != nullptr);
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
