#pragma once
// The mean of squared differences.

#include <cstddef>

#include "shardwise/core/compiled.hpp"
#include "shardwise/train/element_loss.hpp"

namespace shardwise {

namespace detail {

/// (prediction - target)², and half of its slope.
struct SquaredDifference {
  template <class A>
  constexpr Term<A> operator()(std::size_t, A prediction, A target) const {
    const A difference = prediction - target;
    return {difference * difference, difference};
  }
};

}  // namespace detail

/// loss = Σ (prediction - target)² / n,   gradient = 2 (prediction - target) / n,
/// n the number of elements of the whole prediction, or 1 for a sum. Each difference is computed in
/// accumulate_t of the dtype, a rank's sum in double.
/// layout   prediction L, gradient L, for Invariant and every Sharded; target Invariant or L
/// sends    nothing for Invariant, an all-reduce of one double for Sharded
/// throws   shape_error if prediction and target differ in shape, argument_error for an empty batch
/// source   torch.nn.MSELoss
struct MeanSquaredError {
  static constexpr const char* name = "mean squared error";  ///< in errors

  LossReduction reduction = LossReduction::mean;  ///< n above, or 1

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
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
    return detail::element_loss(*this, frame, prediction, target, gradient,
                                detail::SquaredDifference{}, 2);
  }
  ///@}
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void MeanSquaredError::require_target(const Shape& prediction,
                                                       const Shape& target) const {
  detail::require_equal_shapes(name, prediction, target);
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
