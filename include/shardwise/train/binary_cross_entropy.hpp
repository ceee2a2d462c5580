#pragma once
// Cross-entropy of classes that are true or false, each by itself.

#include <cmath>
#include <cstddef>

#include "shardwise/layout/local_shape.hpp"
#include "shardwise/train/class_weights.hpp"
#include "shardwise/train/element_loss.hpp"

namespace shardwise {

namespace detail {

/// -(1 - t) log s(-z) - w t log s(z) with s(z) = 1 / (1 + exp(-z)), without overflow.
template <class A>
struct LogisticTerm {
  WeightsThere weights;  ///< of the classes where they are true
  std::size_t inner;     ///< elements of the prediction for each of its classes
  std::size_t classes;   ///< of the rank
  std::size_t first;     ///< number of the first of these

  constexpr Term<A> operator()(std::size_t i, A z, A t) const {
    const A weight = weights.of<A>(first + i / inner % classes);
    const A e = std::exp(-std::abs(z));
    const A rest = std::log1p(e);
    const A above = 1 / (1 + e);
    const A below = e / (1 + e);
    const bool is_above = z > 0;
    const A loss_if_false = (is_above ? z : A(0)) + rest;
    const A loss_if_true = (is_above ? A(0) : -z) + rest;
    return {(1 - t) * loss_if_false + weight * t * loss_if_true,
            (1 - t) * (is_above ? above : below) - weight * t * (is_above ? below : above)};
  }
};

}  // namespace detail

/// loss = -Σ ((1 - t) log s(-z) + w t log s(z)) / n,   s(z) = 1 / (1 + exp(-z)),
/// over all elements z of the prediction and t of the target, which is a probability: often 0 or 1.
/// w is the weight of the element's class, or 1; n the number of elements of the whole prediction,
/// or 1 for a sum.
///
///     const BinaryCrossEntropy loss{.positive_weights = weights.view()};
///
/// Weights have the shape of one axis of the prediction: [feature 10], or [channel 3] for images.
/// layout, sends    as MeanSquaredError
/// throws   as MeanSquaredError; shape_error for another number of weights, and argument_error for
///          a weight that is negative or not finite
/// source   torch.nn.BCEWithLogitsLoss with `pos_weight`
struct BinaryCrossEntropy {
  static constexpr const char* name = "binary cross-entropy";  ///< in errors

  ClassWeights positive_weights{};                ///< of each class where it is true
  LossReduction reduction = LossReduction::mean;  ///< n above, or 1

  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges = SumOfTerms<L>;

  void require_target(const Shape& prediction, const Shape& target) const {
    detail::require_equal_shapes(name, prediction, target);
    detail::require_weights(name, of_positive, positive_weights, prediction);
  }

  template <class Frame, Real T, Layout L, class Target>
  auto operator()(Frame& frame, View<const T, L> prediction, const Target& target,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    require_target(prediction.global(), target.global());
    const detail::WeightsOfCall weights(frame, name, of_positive, positive_weights);
    detail::LogisticTerm<accumulate_t<T>> term{weights.there(), 1, 1, 0};
    if (detail::are_given(positive_weights)) place<L>(term, prediction);
    return detail::element_loss(*this, frame, prediction, target, gradient, term);
  }
  ///@}

 private:
  static constexpr const char* of_positive = "positive weights";

  /// Tells the term which classes the rank has.
  template <Layout L, class A, class T>
  void place(detail::LogisticTerm<A>& term, const View<const T, L>& prediction) const {
    const Shape& here = prediction.local();
    const std::size_t axis = detail::axis_of_weights(positive_weights, prediction.global());
    term.inner = here.elements(axis + 1, here.rank());
    term.classes = here[axis].extent();
    if constexpr (ShardedLayout<L>) {
      if (L::axis == here[axis].axis)
        term.first = local_block<L>(prediction.global(), prediction.place()).offset;
    }
  }
};

}  // namespace shardwise
