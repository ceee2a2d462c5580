#pragma once
// Squares of small differences, and magnitudes of large ones.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/train/element_loss.hpp"

namespace shardwise {

namespace detail {

/// factor c (|d| - c / 2) with c = min(|d|, bound), of differences d: factor d² / 2 up to `bound`,
/// and factor bound (|d| - bound / 2) beyond it.
template <class A>
struct SquaredWithin {
  A bound;
  A factor;

  constexpr Term<A> operator()(std::size_t, A prediction, A target) const {
    const A difference = prediction - target;
    const A magnitude = std::abs(difference);
    const A within = at_most(magnitude, bound);  // NaN stays
    const A slope = factor * within;
    return {slope * (magnitude - within / 2), std::copysign(slope, difference)};
  }
};

}  // namespace detail

/// loss = Σ f(prediction - target) / n,   f(d) = d² / 2                    for |d| < delta
///                                               delta (|d| - delta / 2)   else
/// n the number of elements of the whole prediction, or 1 for a sum.
/// layout, sends    as MeanSquaredError
/// throws   as MeanSquaredError; argument_error unless delta is above 0
/// source   Huber 1964; torch.nn.HuberLoss
struct Huber {
  static constexpr const char* name = "Huber";  ///< in errors

  double delta = 1;                               ///< as in the formula
  LossReduction reduction = LossReduction::mean;  ///< n above, or 1

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("delta", delta);
    f("reduction", detail::word(reduction));
  }

  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges = SumOfTerms<L>;

  void require_target(const Shape& prediction, const Shape& target) const;

  template <class Frame, Real T, Layout L, class Target>
  auto operator()(Frame& frame, View<const T, L> prediction, const Target& target,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    using A = accumulate_t<T>;
    return detail::element_loss(*this, frame, prediction, target, gradient,
                                detail::SquaredWithin<A>{static_cast<A>(delta), 1});
  }
  ///@}
};

/// loss = Σ f(prediction - target) / n,   f(d) = d² / (2 beta)    for |d| < beta
///                                               |d| - beta / 2   else
/// n the number of elements of the whole prediction, or 1 for a sum. With a beta of 0 it is the
/// mean of magnitudes, torch.nn.L1Loss.
/// layout, sends    as MeanSquaredError
/// throws   as MeanSquaredError; argument_error for a negative beta
/// source   Girshick 2015; torch.nn.SmoothL1Loss
struct SmoothL1 {
  static constexpr const char* name = "SmoothL1";  ///< in errors

  double beta = 1;                                ///< as in the formula
  LossReduction reduction = LossReduction::mean;  ///< n above, or 1

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("beta", beta);
    f("reduction", detail::word(reduction));
  }

  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges = SumOfTerms<L>;

  void require_target(const Shape& prediction, const Shape& target) const;

  template <class Frame, Real T, Layout L, class Target>
  auto operator()(Frame& frame, View<const T, L> prediction, const Target& target,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    using A = accumulate_t<T>;
    // The reciprocal of the smallest normal number is finite.
    const A bound = std::max(static_cast<A>(beta), std::numeric_limits<A>::min());
    return detail::element_loss(*this, frame, prediction, target, gradient,
                                detail::SquaredWithin<A>{bound, 1 / bound});
  }
  ///@}
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

// Throws argument_error unless `value` is finite and above 0, or 0 if that may be.
SHARDWISE_INLINE void check_bound(const char* loss, const char* option, double value,
                                  bool may_be_zero) {
  if (std::isfinite(value) && (value > 0 || (may_be_zero && value == 0))) return;
  throw argument_error({loss, ": ", option, " is ", value,
                        ", but it is a difference of prediction and target up to which squares "
                        "count: give a number ",
                        may_be_zero ? "that is not negative" : "above 0"});
}

}  // namespace shardwise::detail

namespace shardwise {

SHARDWISE_INLINE void Huber::require_target(const Shape& prediction, const Shape& target) const {
  detail::check_bound(name, "delta", delta, false);
  detail::require_equal_shapes(name, prediction, target);
}

SHARDWISE_INLINE void SmoothL1::require_target(const Shape& prediction, const Shape& target) const {
  detail::check_bound(name, "beta", beta, true);
  detail::require_equal_shapes(name, prediction, target);
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
