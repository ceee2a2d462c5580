#pragma once
// Losses that add a term for each element of the prediction.

#include <concepts>
#include <cstddef>
#include <string_view>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/train/labels.hpp"
#include "shardwise/train/loss.hpp"

namespace shardwise::detail {

/// The term of one element, and its derivative by the prediction, up to a factor of all slopes.
template <class A>
struct Term {
  A value;
  A slope;
};

/// Writes the gradient of an element, and returns its term. `term(i, prediction, target)` is the
/// Term of the rank's element i.
template <class T, class F>
struct PutTerm {
  using A = accumulate_t<T>;
  static constexpr bool writes = true;

  F term;
  const T* prediction;
  const T* target;
  A factor;  ///< of the slopes
  A* gradient;

  constexpr A operator()(std::size_t i) const {
    const Term<A> here = term(i, static_cast<A>(prediction[i]), static_cast<A>(target[i]));
    gradient[i] = factor * here.slope;
    return here.value;
  }
};

/// Throws shape_error unless prediction and target have the same shape; `loss` is its name.
void require_equal_shapes(std::string_view loss, const Shape& prediction, const Shape& target);

/// The sum over all elements of term(i, prediction, target), or the mean, as `loss.reduction` says;
/// writes its gradient, for which all slopes are multiplied by `slopes`. Terms are computed in
/// accumulate_t of T, a rank's sum in double.
template <class Loss, class Frame, Real T, Layout L, class Target, class F>
auto element_loss(const Loss& loss, Frame& frame, View<const T, L> prediction,
                  const Target& given_target, View<accumulate_t<T>, dual_t<L>> gradient,
                  const F& term, double slopes = 1) {
  static_assert(std::same_as<L, Invariant> || ShardedLayout<L>,
                "a loss of elements takes a prediction that is Invariant or Sharded, for a Partial "
                "is no number yet and a Replicated would count once on each rank. Let the model "
                "end in one of those: Ends<Offered, Invariant>.");
  using A = accumulate_t<T>;
  const auto target = target_along<T, L>(given_target);
  loss.require_target(prediction.global(), target.global());
  require_reach(
      frame.backend(), target, [] { return Loss::name; }, "target");
  const double divisor = frame.divisor_of_step(loss.reduction, prediction.global().elements());
  const std::size_t count = prediction.size();
  const auto here = part_of_target<L>(frame.backend(), frame.pool(), target, prediction.place());
  const PutTerm<T, F> put{term, prediction.data(), here.view().data(),
                          static_cast<A>(slopes / divisor), gradient.data()};
  return frame.sum_of_terms(count, put) / divisor;
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void require_equal_shapes(std::string_view loss, const Shape& prediction,
                                           const Shape& target) {
  if (prediction == target) return;
  throw shape_error({loss, ": the prediction is a tensor ", prediction, " and the target ", target,
                     "; they must be equal, axes included"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
