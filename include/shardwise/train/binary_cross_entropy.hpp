#pragma once
// Cross-entropy of classes that are true or false, each by itself.

#include <cmath>
#include <cstddef>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/train/class_weights.hpp"
#include "shardwise/train/element_loss.hpp"

namespace shardwise {

namespace detail {

/// -(1 - t) log s(-z) - w t log s(z) with s(z) = 1 / (1 + exp(-z)), without overflow. Inlined
/// always: g++ would keep a call of it without the number i, which is not used, out of vectors.
template <class A>
struct LogisticTerm {
  [[gnu::always_inline]] constexpr Term<A> operator()(std::size_t, A z, A t, A weight = 1) const {
    const A e = exponential(-std::abs(z));
    const A rest = log_of_one_plus(e);
    const A above = 1 / (1 + e);
    const A below = e * above;
    const A s = select(z > 0, above, below);
    const A other = select(z > 0, below, above);
    const A loss_if_false = at_least(z, A(0)) + rest;
    const A loss_if_true = at_least(-z, A(0)) + rest;
    return {(1 - t) * loss_if_false + weight * t * loss_if_true, (1 - t) * s - weight * t * other};
  }
};

/// The same with a weight w of each element.
template <class A>
struct WeightedLogisticTerm {
  const A* weights;

  [[gnu::always_inline]] constexpr Term<A> operator()(std::size_t i, A z, A t) const {
    return LogisticTerm<A>{}(i, z, t, weights[i]);
  }
};

/// Writes the weight of an element: that of its class where it is true.
template <class A>
struct PutClassWeight {
  static constexpr bool is_scalar = true;

  WeightsThere weights;
  std::size_t inner;    ///< elements of the prediction for each of its classes
  std::size_t classes;  ///< of the rank
  std::size_t first;    ///< number of the first of these
  A* to;

  constexpr void operator()(std::size_t i) const {
    to[i] = weights.of<A>(first + i / inner % classes);
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

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("positive_weights", positive_weights);
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
    require_target(prediction.global(), target.global());
    const detail::WeightsOfCall weights(frame, name, of_positive, positive_weights);
    using A = accumulate_t<T>;
    const auto with = [&](const auto& term) {
      return detail::element_loss(*this, frame, prediction, target, gradient, term);
    };
    if (!detail::are_given(positive_weights)) return with(detail::LogisticTerm<A>{});
    const Buffer memory = frame.pool().take(prediction.size() * sizeof(A));
    A* const of_elements = static_cast<A*>(memory.data());
    put_weights<L>(frame, weights.there(), prediction, of_elements);
    return with(detail::WeightedLogisticTerm<A>{of_elements});
  }
  ///@}

 private:
  static constexpr const char* of_positive = "positive weights";

  /// Writes the weights of all elements.
  template <Layout L, class Frame, class T, class A>
  void put_weights(Frame& frame, const detail::WeightsThere& weights,
                   const View<const T, L>& prediction, A* to) const {
    const Shape& here = prediction.local();
    const std::size_t axis = detail::axis_of_weights(positive_weights, prediction.global());
    detail::PutClassWeight<A> weight{weights, here.elements(axis + 1, here.rank()),
                                     here[axis].extent(), 0, to};
    if constexpr (ShardedLayout<L>) {
      if (L::axis == here[axis].axis)
        weight.first = local_block<L>(prediction.global(), prediction.place()).offset;
    }
    frame.backend().for_each(prediction.size(), weight);
  }
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void BinaryCrossEntropy::require_target(const Shape& prediction,
                                                         const Shape& target) const {
  detail::require_equal_shapes(name, prediction, target);
  detail::require_weights(name, of_positive, positive_weights, prediction);
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
