#pragma once
// Learning rates that change from step to step.
//
// A schedule is a pure function from the number of completed steps to the rate of the next one:
//
//     const CosineDecay schedule{.rate = 1e-3, .steps = 10'000, .warm_up = {.steps = 500}};
//     schedule.check();
//     optimizer.set_learning_rate(schedule(optimizer.steps()));     // before each step
//
// A skipped step (see loss_scaler.hpp) is not completed, and is repeated at the same rate.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

/// The first `steps` steps of a schedule: the rate rises linearly from `from` times the first rate
/// of the schedule to this first rate, which step number `steps` has. There the schedule itself
/// begins.
/// source   torch.optim.lr_scheduler: SequentialLR of LinearLR(start_factor=from,
///          total_iters=steps) and the schedule
struct WarmUp {
  std::uint64_t steps = 0;  ///< 0 for no warm-up
  double from = 0;          ///< fraction of the first rate, in [0, 1]

  /// throws   argument_error for a factor outside [0, 1]
  void check(const char* schedule) const;

  /// The rate after `done` steps, fewer than `steps`; `rate` is the first rate of the schedule.
  constexpr double operator()(double rate, std::uint64_t done) const {
    const double way = static_cast<double>(done) / static_cast<double>(steps);
    return rate * (from + (1 - from) * way);
  }
};

/// A constant rate, after warm-up.
struct ConstantRate {
  double rate = 1e-3;  ///< of all steps
  WarmUp warm_up{};    ///< before them

  /// throws   argument_error for a rate that is negative or NaN
  void check() const;

  /// The rate of the next step after `done` steps.
  constexpr double operator()(std::uint64_t done) const {
    return done < warm_up.steps ? warm_up(rate, done) : rate;
  }
};

/// `rate`, times `factor` after every `every` steps: rate factor^floor(t / every), t counted from
/// the end of warm-up.
/// source   torch.optim.lr_scheduler.StepLR
struct StepDecay {
  ///@{
  /// As above.
  double rate = 1e-3;
  std::uint64_t every = 1;
  double factor = 0.1;
  WarmUp warm_up{};
  ///@}

  /// throws   argument_error for options that are negative or NaN, and for an `every` of 0
  void check() const;

  /// The rate of the next step after `done` steps.
  constexpr double operator()(std::uint64_t done) const {
    if (done < warm_up.steps) return warm_up(rate, done);
    double power = 1;
    double square = factor;
    for (std::uint64_t n = (done - warm_up.steps) / every; n > 0; n /= 2) {
      if (n % 2 == 1) power *= square;
      square *= square;
    }
    return rate * power;
  }
};

/// Half a cosine from `rate` at the end of warm-up to `final_rate` at step `steps`, which includes
/// warm-up: final_rate + (rate - final_rate) (1 + cos(pi t / T)) / 2 with T = steps -
/// warm_up.steps. After that the rate is `final_rate`.
/// source   Loshchilov and Hutter 2017, equation 5, without restarts;
///          torch.optim.lr_scheduler.CosineAnnealingLR up to its T_max, after which that rises
///          again
struct CosineDecay {
  ///@{
  /// As above.
  double rate = 1e-3;
  std::uint64_t steps = 1;
  double final_rate = 0;
  WarmUp warm_up{};
  ///@}

  /// throws   argument_error for rates that are negative or NaN, and for a warm-up that leaves no
  ///          step for the cosine
  void check() const;

  /// The rate of the next step after `done` steps.
  double operator()(std::uint64_t done) const;
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void WarmUp::check(const char* schedule) const {
  if (from >= 0 && from <= 1) return;
  throw argument_error(
      {schedule, ": warm_up.from is ", from, "; it is a share of the rate, and must be in [0, 1]"});
}

SHARDWISE_INLINE void ConstantRate::check() const {
  detail::check_option("ConstantRate", "rate", rate, std::numeric_limits<double>::infinity());
  warm_up.check("ConstantRate");
}

SHARDWISE_INLINE void StepDecay::check() const {
  constexpr double any = std::numeric_limits<double>::infinity();
  detail::check_option("StepDecay", "rate", rate, any);
  detail::check_option("StepDecay", "factor", factor, any);
  warm_up.check("StepDecay");
  if (every == 0) {
    throw argument_error(
        "StepDecay: every is 0; it counts the steps between two changes of the "
        "rate, and must be at least 1");
  }
}

SHARDWISE_INLINE void CosineDecay::check() const {
  constexpr double any = std::numeric_limits<double>::infinity();
  detail::check_option("CosineDecay", "rate", rate, any);
  detail::check_option("CosineDecay", "final_rate", final_rate, any);
  warm_up.check("CosineDecay");
  if (warm_up.steps >= steps) {
    throw argument_error({"CosineDecay: warm_up has ", warm_up.steps,
                          " steps, but the schedule has ", steps,
                          " with warm-up counted in: it must have at least one more"});
  }
}

SHARDWISE_INLINE double CosineDecay::operator()(std::uint64_t done) const {
  if (done < warm_up.steps) return warm_up(rate, done);
  const double end = static_cast<double>(steps - warm_up.steps);
  const double t = std::min(static_cast<double>(done - warm_up.steps), end);
  return final_rate + (rate - final_rate) * (1 + std::cos(std::numbers::pi * t / end)) / 2;
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
