#pragma once
// The mean of squared differences.

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/train/labels.hpp"

namespace shardwise {

namespace detail {

/// Writes gradient = slope (prediction - target), and returns (prediction - target)².
template <class T>
struct SquaredDifference {
  using A = accumulate_t<T>;

  const T* prediction;
  const T* target;
  A slope;
  A* gradient;

  constexpr double operator()(std::size_t i) const {
    const A difference = static_cast<A>(prediction[i]) - static_cast<A>(target[i]);
    gradient[i] = slope * difference;
    return static_cast<double>(difference * difference);
  }
};

}  // namespace detail

/// loss = Σ (prediction - target)² / n,   gradient = 2 (prediction - target) / n,
/// n the number of elements of the whole prediction. Each difference is computed in accumulate_t of
/// the dtype, a rank's sum in double.
/// layout   prediction L, gradient L, for Invariant and every Sharded; target Invariant or L
/// sends    nothing for Invariant, an all-reduce of one double for Sharded
/// throws   shape_error if prediction and target differ in shape, argument_error for an empty batch
struct MeanSquaredError {
  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges = std::conditional_t<
      std::same_as<L, Invariant>, std::tuple<>,
      std::tuple<Exchange<Redistribute<Partial, Invariant>, Reduction::sum, double>>>;

  template <Layout L>
  constexpr auto exchange_shapes(const Shape&) const {
    return std::array<Shape, std::tuple_size_v<exchanges<L>>>{};
  }

  void require_target(const Shape& prediction, const Shape& target) const {
    if (prediction == target) return;
    throw shape_error({"mean squared error: the prediction is a tensor ", prediction,
                       " and the target ", target, "; they must be equal, axes included"});
  }

  template <class Frame, Real T, Layout L, class Target>
  auto operator()(Frame& frame, View<const T, L> prediction, const Target& given_target,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    static_assert(std::same_as<L, Invariant> || ShardedLayout<L>,
                  "MeanSquaredError takes a prediction that is Invariant or Sharded, for a Partial "
                  "is no number yet and a Replicated would count once on each rank. Let the model "
                  "end in one of those: Ends<Offered, Invariant>.");
    using A = accumulate_t<T>;
    const auto target = detail::target_along<T, L>(given_target);
    require_target(prediction.global(), target.global());
    detail::check_place(prediction, target);
    detail::require_reach(
        frame.backend(), target, [] { return "MeanSquaredError"; }, "target");
    const double terms = frame.terms_of_step(prediction.global().elements());
    const std::size_t count = prediction.size();
    const auto here =
        detail::part_here<L>(frame.backend(), frame.pool(), target, prediction.place());
    const detail::SquaredDifference<T> squares{prediction.data(), here.view().data(),
                                               static_cast<A>(2.0 / terms), gradient.data()};
    if constexpr (ShardedLayout<L>) {
      return frame.template sum_of_ranks<0>(count, squares) / terms;
    } else {
      return frame.sum(count, squares) / terms;
    }
  }
  ///@}
};

}  // namespace shardwise
