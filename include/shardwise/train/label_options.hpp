#pragma once
// What losses of class labels share: which labels count, by how much, and how the labels are
// checked.

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/train/class_weights.hpp"
#include "shardwise/train/labels.hpp"
#include "shardwise/train/loss.hpp"

namespace shardwise::detail {

/// What the labels of a whole step that are not ignored add up to: their number, or with class
/// weights the sum of the weights of their classes. Converts from any number.
struct LabelSum {
  double value = 0;  ///< 0 if it is not known

  ///@{
  /// The sum.
  constexpr LabelSum() = default;
  template <class Number>
  requires(std::is_arithmetic_v<Number>) constexpr LabelSum(Number number)
      : value(static_cast<double>(number)) {}
  ///@}
};

/// Whether ranks have different rows of logits in the layout L.
template <Layout L>
inline constexpr bool splits_rows = ShardedLayout<L> && !std::same_as<L, Sharded<Axis::feature>>;

/// Whether a loss of class labels takes logits in the layout L; explains it when it does not.
template <Layout L>
consteval bool must_have_rows_of_classes() {
  static_assert(std::same_as<L, Invariant> || std::same_as<L, Sharded<Axis::feature>> ||
                    std::same_as<L, Sharded<Axis::batch>> ||
                    std::same_as<L, Sharded<Axis::sequence>>,
                "a loss of class labels takes logits that are Invariant, or Sharded by feature "
                "(classes), batch or sequence. Let the model end in one of those: Ends<Offered, "
                "Invariant>.");
  return true;
}

/// What the label of a row adds to the divisor of a mean.
struct WeightOfRow {
  const std::int32_t* labels;
  std::int64_t ignored;
  WeightsThere weights;

  constexpr double operator()(std::size_t row) const {
    if (labels[row] == ignored) return 0;
    return weights.of<double>(static_cast<std::size_t>(labels[row]));
  }
};

/// The options of a loss of class labels.
struct LabelOptions {
  const char* loss;  ///< its name
  LossReduction reduction = LossReduction::mean;
  std::int64_t ignored = none_ignored;
  ClassWeights class_weights{};
  LabelSum counted{};  ///< of the step; 0 to add it up

  /// Throws shape_error for labels or weights that do not fit the logits, argument_error unless
  /// `counted` is finite and not negative.
  void require(const Shape& logits, const Shape& labels) const;

  /// The labels as a view, after all checks that need no other rank.
  template <Layout L, class Frame, class T, class Labels>
  auto checked_labels(Frame& frame, const View<const T, L>& logits, const Labels& given) const {
    const auto labels = target_along<std::int32_t, rows_layout_t<L>>(given);
    require_reach(
        frame.backend(), labels, [this] { return loss; }, "labels");
    require(logits.global(), labels.global());
    if (!frame.is_recorded())
      check_labels(frame.backend(), frame.pool(), logits.global(), labels, ignored);
    return labels;
  }

  WeightsOfCall checked_weights(auto& frame) const {
    return {frame, loss, "class weights", class_weights};
  }

  /// The number by which the loss of `rows` rows is divided, as far as no label must be read for
  /// it; else 0.
  double known_divisor(const auto& frame, std::size_t rows) const {
    const double of_rows = frame.divisor_of_step(reduction, rows);
    if (reduction == LossReduction::sum) return of_rows;
    const bool all_count_alike = ignored == none_ignored && !are_given(class_weights);
    return all_count_alike && counted.value == 0 ? of_rows : counted.value;
  }

  /// The same, with what labels add to it. For split rows exchange 0, of one double, always runs.
  template <Layout L, class Frame, class Labels, class Here>
  double divisor(Frame& frame, const Labels& labels, const Here& here,
                 const WeightsThere& weights) const {
    double divisor = known_divisor(frame, labels.global().elements());
    const bool is_known = divisor > 0;
    if (!is_known) require_whole_step(frame);
    if constexpr (splits_rows<L>) {
      auto mine = frame.template exchange_input<0>();
      reduce(frame.backend(), here.size(), 0.0, WeightOfRow{here.data(), ignored, weights}, Plus{},
             mine.writable().data());
      const auto all = frame.template exchange<0>(std::move(mine));
      if (!is_known) to_host(frame.backend(), all.view().data(), 1, &divisor);
    } else if (!is_known) {
      divisor = reduced(frame.backend(), frame.pool(), labels.size(), 0.0,
                        WeightOfRow{labels.data(), ignored, weights}, Plus{});
    }
    if (divisor > 0) return divisor;
    throw argument_error({loss,
                          ": the loss is a mean over the labels that are not ignored and whose "
                          "class has a weight, and there are none in this step: leave it out"});
  }

 private:
  void require_whole_step(const auto& frame) const {
    if (frame.is_whole_step() && !frame.is_recorded()) return;
    throw argument_error({loss, ": labels may be ignored or weighted, and ",
                          frame.is_recorded() ? "a recorded step cannot read which"
                                              : "the rank has only a part of the step's labels",
                          ": set `counted` to the number of labels of the whole step that are not "
                          "ignored, or to the sum of their weights"});
  }
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void LabelOptions::require(const Shape& logits, const Shape& labels) const {
  check_label_shape(logits, labels);
  require_weights(loss, "class weights", class_weights, Shape{logits.back()});
  if (std::isfinite(counted.value) && counted.value >= 0) return;
  throw argument_error({loss, ": `counted` is ", counted.value,
                        "; give the number of labels of the whole step that are not ignored, or "
                        "the sum of their weights"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
