#pragma once
// A factor on the loss that keeps small gradients from becoming 0 in a narrow dtype.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/shares.hpp"
#include "shardwise/train/clip.hpp"

namespace shardwise {

/// The rule of a loss scale: times `backoff` after a step whose gradients overflowed, times
/// `growth` after `interval` steps in a row without overflow.
/// source   torch.amp.GradScaler, with its defaults
struct DynamicLossScale {
  double initial = 65536;         ///< the first scale
  double growth = 2;              ///< above 1
  double backoff = 0.5;           ///< between 0 and 1
  std::uint64_t interval = 2000;  ///< steps in a row before the scale grows
};

/// The factor of the loss's gradient before backward, in accumulate_t of the model's dtype. A
/// `Step` divides the gradients by it when it finishes, in their dtype. If a gradient is then not
/// finite on some rank, all ranks skip the step.
///
///     LossScaler scaler;
///     train_step(model, x, labels, loss, optimizer, {.scaler = &scaler});
///
/// The loss itself is not scaled, so a loss that is not finite is an error with a scaler, too. A
/// scale is a finite, normal number of float. If its options are powers of two, so is the scale,
/// and it rounds nothing. Each rank has its own scaler, and all are always equal.
class LossScaler {
 public:
  /// What a step changes, for checkpoints.
  struct State {
    double scale = 1;            ///< of the next step
    std::uint64_t in_a_row = 0;  ///< steps since the last overflow or growth
    std::uint64_t skipped = 0;   ///< steps skipped in total

    friend bool operator==(const State&, const State&) = default;
  };

  /// throws   argument_error for an initial scale that is not a normal float above 0, a growth not
  ///          above 1, a backoff not between 0 and 1, and an interval of 0
  explicit LossScaler(const DynamicLossScale& options = {});

  /// Keeps the factor constant; steps that overflow are skipped.
  /// throws   argument_error for a scale that is not a normal float above 0
  static LossScaler fixed(double scale);

  /// The factor for the next step.
  double scale() const { return scale_; }

  /// Number of skipped steps so far.
  std::uint64_t skipped() const { return skipped_; }

  /// The state for a checkpoint.
  State state() const { return {scale_, in_a_row_, skipped_}; }

  /// Continues from `state`, with this scaler's own options.
  /// throws   argument_error for a scale that is not a normal float above 0
  void set_state(const State& state);

  /// Updates the scale after a step. A `Step` calls it.
  /// throws   numeric_error if the scale would become too small
  void update(bool overflowed);

 private:
  static bool is_scale(double scale);

  static void check(const char* option, double value, bool good, const char* rule);

  DynamicLossScale options_;
  double scale_ = 1;
  std::uint64_t in_a_row_ = 0;
  std::uint64_t skipped_ = 0;
};

namespace detail {

/// Multiplies a number by `factor` and rounds it once; gives 0 if the result is finite, else NaN.
/// So the sum of all is 0 or NaN.
template <Real T>
struct ScaleAndCheck {
  using A = accumulate_t<T>;

  T* numbers;
  A factor;

  constexpr A operator()(std::size_t i) const {
    numbers[i] = static_cast<T>(static_cast<A>(numbers[i]) * factor);
    return A(0) * static_cast<A>(numbers[i]);
  }
};

/// Divides the settled gradients of the rank's shares by `loss_scale`. Returns whether any of them
/// is then not finite.
template <class Context>
bool take_out_scale(Run<Context>& run, const Shares& shares, double loss_scale) {
  using G = typename Context::precision::gradient;
  using A = accumulate_t<G>;
  run.parameters.collect(run.backend);
  bool overflowed = false;
  for (const Share& share : shares.of) {
    if (share.gradients.size == 0) continue;
    const ScaleAndCheck<G> scale{run.parameters.gradients().data() + share.gradients.offset,
                                 static_cast<A>(1 / loss_scale)};
    if (reduced(run.backend, run.pool, share.gradients.size, A(0), scale, Plus{}) != 0)
      overflowed = true;
  }
  return overflowed;
}

/// Whether gradients overflowed on any rank, of which each looked at these shares.
/// sends    an all-reduce (max) of one uint8; before it one along `data` if shares are cut, and one
///          along `pipeline` if the model is a stage
template <class Context>
bool overflowed_anywhere(Run<Context>& run, [[maybe_unused]] const Shares& shares, bool here) {
  std::uint8_t found = here ? 1 : 0;
  const auto name = [] { return std::string("overflow of gradients"); };
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    if (shares.are_cut || run.parameters.stores_share())
      found = all_reduced(run, run.all_ranks.along(MeshAxis::data), name, found, Reduction::max);
    if (run.stage.all_ranks != nullptr)
      found = all_reduced(run, run.stage.all_ranks->along(MeshAxis::pipeline), name, found,
                          Reduction::max);
  }
  return all_reduced(run, run.ranks, name, found, Reduction::max) != 0;
}

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE LossScaler::LossScaler(const DynamicLossScale& options) : options_(options) {
  check("initial", options.initial, is_scale(options.initial), "a normal float above 0");
  check("growth", options.growth, options.growth > 1 && std::isfinite(options.growth), "above 1");
  check("backoff", options.backoff, options.backoff > 0 && options.backoff < 1, "between 0 and 1");
  check("interval", static_cast<double>(options.interval), options.interval > 0, "at least 1");
  scale_ = options.initial;
}

SHARDWISE_INLINE LossScaler LossScaler::fixed(double scale) {
  LossScaler scaler(DynamicLossScale{.initial = scale});
  scaler.options_.growth = 1;
  scaler.options_.backoff = 1;
  return scaler;
}

SHARDWISE_INLINE void LossScaler::set_state(const State& state) {
  check("scale", state.scale, is_scale(state.scale), "a normal float above 0");
  scale_ = state.scale;
  in_a_row_ = state.in_a_row;
  skipped_ = state.skipped;
}

SHARDWISE_INLINE void LossScaler::update(bool overflowed) {
  if (overflowed) {
    const double smaller = scale_ * options_.backoff;
    if (!is_scale(smaller)) {
      throw numeric_error({"gradients overflow at a loss scale of ", scale_,
                           " too, so it is not the scale that makes them do so. Try a smaller "
                           "learning rate, or bf16 instead of fp16"});
    }
    scale_ = smaller;
    in_a_row_ = 0;
    ++skipped_;
  } else if (++in_a_row_ >= options_.interval) {
    if (is_scale(scale_ * options_.growth)) scale_ *= options_.growth;
    in_a_row_ = 0;
  }
}

SHARDWISE_INLINE bool LossScaler::is_scale(double scale) {
  using Float = std::numeric_limits<float>;
  return scale >= double{Float::min()} && scale <= double{Float::max()};
}

SHARDWISE_INLINE void LossScaler::check(const char* option, double value, bool good,
                                        const char* rule) {
  if (good) return;
  throw argument_error({"LossScaler: ", option, " is ", value, "; it must be ", rule});
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
