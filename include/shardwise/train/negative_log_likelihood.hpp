#pragma once
// The loss of logarithms of probabilities with class indices.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/train/class_weights.hpp"
#include "shardwise/train/label_options.hpp"
#include "shardwise/train/labels.hpp"
#include "shardwise/train/loss.hpp"

namespace shardwise {

namespace detail {

/// Writes the gradient of a row's label, if the rank has it, and returns what the row adds to the
/// rank's sum: NaN if its label is not a class. The rest of the gradient is 0.
template <class T>
struct PutLikelihood {
  using A = accumulate_t<T>;

  LogitRows<T> rows;
  IsNoClass is_no_class;
  A divisor;
  A* gradient;

  constexpr double operator()(std::size_t row) const {
    if (is_no_class(row) != 0) return std::numeric_limits<double>::quiet_NaN();
    const std::size_t k = rows.label(row);
    if (!rows.counts(row) || k >= rows.classes) return 0;
    const A weight = rows.weights.template of<A>(rows.first + k);
    gradient[row * rows.classes + k] = -weight / divisor;
    return -static_cast<double>(weight * static_cast<A>(rows.of(row)[k]));
  }
};

}  // namespace detail

/// loss = -Σ_rows w_label y_label / Σ_rows w_label, where y are logarithms of the probabilities of
/// the classes, along the innermost axis, and w the weights of classes, each 1 if there are none.
/// The sums are over the rows of the whole step whose label is not ignored; the loss can also be
/// the first sum alone. For logits CrossEntropy takes the logarithm of their softmax, too.
///
/// layout   y L, gradient L: Invariant, Sharded<feature>, Sharded<batch>, Sharded<sequence>;
///          labels Invariant, or split along with the rows of y
/// sends    Invariant         nothing
///          Sharded<feature>  an all-reduce of one double
///          else              two of them
/// throws   as MaskedCrossEntropy
/// source   torch.nn.NLLLoss
struct NegativeLogLikelihood {
  static constexpr const char* name = "negative log-likelihood";  ///< in errors

  std::optional<std::int32_t> ignored{};  ///< the label of rows that do not count, if there is one
  detail::LabelSum counted{};             ///< Σ_rows w_label of the whole step; 0 to add it up
  ClassWeights class_weights{};           ///< w, one for each class
  LossReduction reduction = LossReduction::mean;  ///< by `counted`, or by 1

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("ignored", ignored.value_or(detail::none_ignored));
    f("counted", counted.value);
    f("class_weights", class_weights);
    f("reduction", detail::word(reduction));
  }

  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges =
      std::conditional_t<detail::splits_rows<L>, std::tuple<detail::SumOfRanks, detail::SumOfRanks>,
                         SumOfTerms<L>>;

  void require_target(const Shape& prediction, const Shape& labels) const;

  template <class Frame, Real T, Layout L, class Labels>
  auto operator()(Frame& frame, View<const T, L> prediction, const Labels& given_labels,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    static_assert(detail::must_have_rows_of_classes<L>());
    const detail::LabelOptions options = this->options();
    const auto labels = options.checked_labels<L>(frame, prediction, given_labels);
    const detail::WeightsOfCall weights = options.checked_weights(frame);
    const auto here = part_of_target<detail::rows_layout_t<L>>(frame.backend(), frame.pool(),
                                                               labels, prediction.place());
    const double divisor = options.divisor<L>(frame, labels, here.view(), weights.there());
    const detail::PutLikelihood<T> put{
        {prediction, here.view(), options.ignored, weights.there()},
        {here.view().data(), prediction.global().back().extent(), options.ignored},
        static_cast<accumulate_t<T>>(divisor),
        gradient.data()};
    detail::fill(frame.backend(), gradient.data(), gradient.size(), accumulate_t<T>(0));
    return frame.sum_of_terms(here.view().size(), put) / divisor;
  }
  ///@}

 private:
  constexpr detail::LabelOptions options() const {
    return {name, reduction, ignored ? *ignored : detail::none_ignored, class_weights, counted};
  }
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void NegativeLogLikelihood::require_target(const Shape& prediction,
                                                            const Shape& labels) const {
  options().require(prediction, labels);
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
