#pragma once
// Weights of classes in a loss: where they are, and what they must be.

#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>

#include "shardwise/comm/given_options.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// The weights of a loss, one for each class: doubles, whatever the model computes in, the same on
/// all ranks, in the memory of the model's backend, where they stay while the loss is used. Ranks
/// compare them with the other options of the loss.
///
///     const ClassWeights weights(numbers, Shape{{Axis::feature, 10}}, place_of(ranks));
///     const auto there = model.to_device(weights);
///     const MaskedCrossEntropy loss{.class_weights = there.view()};
///
/// Without memory there are no weights, and each class counts as 1. A RecordedStep checks them
/// only in its first two launches.
using ClassWeights = View<const double, Invariant>;

namespace detail {

/// Whether there are weights.
inline bool are_given(const ClassWeights& weights) {
  return weights.data() != nullptr || weights.global().rank() > 0;
}

/// Weights for loops, with the number of classes and the sum of their weights.
struct WeightsThere {
  const double* weights = nullptr;
  std::size_t classes = 0;
  const double* sum = nullptr;

  /// The weight of a class; 0 for a number that is no class.
  template <class A>
  constexpr A of(std::size_t k) const {
    if (weights == nullptr) return 1;
    return k < classes ? static_cast<A>(weights[k]) : A(0);
  }
};

/// The weight of a class, or NaN if it cannot be one.
struct CheckedWeight {
  const double* weights;
  constexpr double operator()(std::size_t k) const {
    const bool fits = weights[k] >= 0 && weights[k] <= std::numeric_limits<double>::max();
    return fits ? weights[k] : std::numeric_limits<double>::quiet_NaN();
  }
};

/// The position of the axis of `prediction` that has these weights, or its rank if there is none.
std::size_t axis_of_weights(const ClassWeights& weights, const Shape& prediction);

/// Throws shape_error unless the weights are those of an axis of `prediction`; `loss` and `what`
/// are the names of the loss and of its weights.
void require_weights(std::string_view loss, std::string_view what, const ClassWeights& weights,
                     const Shape& prediction);

/// A copy of the weights in memory of the host.
template <class B>
Buffer weights_on_host(B& backend, Pool& pool, const ClassWeights& weights) {
  Buffer memory = pool.take_on_host(weights.size() * sizeof(double));
  to_host(backend, weights.data(), weights.size(), static_cast<double*>(memory.data()));
  return memory;
}

/// Adds weights to what ranks compare, if there are any. Those that the backend does not reach are
/// refused by the loss.
template <class B>
void add_weights(GivenOptions& to, B& backend, Pool& pool, std::string_view name,
                 const ClassWeights& weights) {
  if (weights.data() == nullptr || weights.size() == 0) return;
  if constexpr (DeviceBackend<B>) {
    if (!backend.reaches(weights.data()))
      return to.add(name, std::string_view("out of reach of the backend"));
  }
  const Buffer memory = weights_on_host(backend, pool, weights);
  to.add(name, static_cast<const double*>(memory.data()), weights.size());
}

/// Throws argument_error that names the first weight that cannot be one; there must be one.
template <class B>
void refuse_weights(B& backend, Pool& pool, std::string_view loss, std::string_view what,
                    const ClassWeights& weights) {
  const Buffer memory = weights_on_host(backend, pool, weights);
  const auto* const here = static_cast<const double*>(memory.data());
  for (std::size_t k = 0; k < weights.size(); ++k) {
    if (!std::isnan(CheckedWeight{here}(k))) continue;
    throw argument_error({loss, ": number ", k, " of the ", what, " is ", here[k],
                          "; give finite numbers that are not negative"});
  }
}

/// The weights of a loss during one call, with their sum in the backend's memory.
class WeightsOfCall {
 public:
  /// None.
  WeightsOfCall() = default;
  /// throws   argument_error for weights that the backend does not reach, and for one that is
  ///          negative or not finite; a recorded step does not notice one that becomes so later
  template <class Frame>
  WeightsOfCall(Frame& frame, const char* loss, const char* what, const ClassWeights& weights) {
    if (!are_given(weights)) return;
    require_reach(
        frame.backend(), weights, [loss] { return loss; }, what);
    memory_ = frame.pool().take(sizeof(double));
    auto* const sum = static_cast<double*>(memory_.data());
    reduce(frame.backend(), weights.size(), 0.0, CheckedWeight{weights.data()}, Plus{}, sum);
    there_ = {weights.data(), weights.size(), sum};
    if (frame.is_recorded()) return;
    double here = 0;
    to_host(frame.backend(), sum, 1, &here);
    if (std::isnan(here)) refuse_weights(frame.backend(), frame.pool(), loss, what, weights);
  }

  /// The weights for loops; none if none are given.
  const WeightsThere& there() const { return there_; }

 private:
  Buffer memory_;
  WeightsThere there_;
};

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::size_t axis_of_weights(const ClassWeights& weights, const Shape& prediction) {
  if (weights.global().rank() != 1) return prediction.rank();
  const Dim& classes = weights.global()[0];
  const std::size_t axis = prediction.find(classes.axis);
  const bool fits = axis < prediction.rank() && prediction[axis].extent() == classes.extent();
  return fits ? axis : prediction.rank();
}

SHARDWISE_INLINE void require_weights(std::string_view loss, std::string_view what,
                                      const ClassWeights& weights, const Shape& prediction) {
  if (!are_given(weights) || axis_of_weights(weights, prediction) < prediction.rank()) return;
  throw shape_error({loss, ": the ", what, " are a tensor ", weights.global(),
                     "; give one number for each class, which are an axis of ", prediction});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
