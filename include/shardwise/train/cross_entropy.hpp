#pragma once
// Softmax cross-entropy with class indices, for whole logits or logits that are split by class.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/train/class_weights.hpp"
#include "shardwise/train/label_options.hpp"
#include "shardwise/train/labels.hpp"
#include "shardwise/train/loss.hpp"
#include "shardwise/train/softmax_rows.hpp"

namespace shardwise {

namespace detail {

/// What CrossEntropy and MaskedCrossEntropy compute.
template <bool Masked>
struct SoftmaxLoss {
  double label_smoothing;
  LabelOptions options;

  template <Layout L>
  using exchanges = std::conditional_t<
      std::same_as<L, Invariant>, std::tuple<>,
      std::conditional_t<
          std::same_as<L, Sharded<Axis::feature>>,
          std::tuple<Exchange<Redistribute<Partial, Invariant>, Reduction::max>,
                     Exchange<Redistribute<Partial, Invariant>>>,
          std::conditional_t<Masked, std::tuple<SumOfRanks, SumOfRanks>, std::tuple<SumOfRanks>>>>;

  template <Layout L>
  constexpr auto exchange_shapes(const Shape& logits) const {
    if constexpr (std::same_as<L, Sharded<Axis::feature>>) {
      return std::array{logits.with_back({Axis::feature, 1}),
                        logits.with_back({Axis::feature, sums_per_row()})};
    } else {
      return std::array<Shape, std::tuple_size_v<exchanges<L>>>();
    }
  }

  /// Throws for options, labels and weights that do not fit.
  void require(const Shape& logits, const Shape& labels) const {
    require_smoothing();
    options.require(logits, labels);
  }

  template <class Frame, Real T, Layout L, class Labels>
  auto operator()(Frame& frame, View<const T, L> logits, const Labels& given_labels,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    static_assert(must_have_rows_of_classes<L>());
    require_smoothing();
    const auto labels = options.checked_labels<L>(frame, logits, given_labels);
    double divisor = options.known_divisor(frame, logits.global().rows());
    WeightsOfCall weights;
    if constexpr (Masked) weights = options.checked_weights(frame);
    const auto here =
        part_of_target<rows_layout_t<L>>(frame.backend(), frame.pool(), labels, logits.place());
    if constexpr (Masked) divisor = options.divisor<L>(frame, labels, here.view(), weights.there());
    const LogitRows<T> rows(logits, here.view(), options.ignored, weights.there());
    const std::size_t count = here.view().size();
    const Buffer memory = frame.pool().take(count * sizeof(accumulate_t<T>));
    auto* const losses = static_cast<accumulate_t<T>*>(memory.data());
    const LossOfRow<accumulate_t<T>> loss{
        losses, {here.view().data(), logits.global().back().extent(), options.ignored}};
    const LossOutput<T> out{rows, shares_of<T>(logits.global()),
                            static_cast<accumulate_t<T>>(divisor), losses, gradient.data()};
    if constexpr (std::same_as<L, Sharded<Axis::feature>>) {
      split_rows(frame, count, out);
      return frame.sum(count, loss) / divisor;
    } else {
      whole_rows(frame, count, out);
      return frame.sum_of_terms(count, loss) / divisor;
    }
  }

 private:
  void require_smoothing() const {
    if (label_smoothing >= 0 && label_smoothing <= 1) return;
    throw argument_error({"cross-entropy: label_smoothing is ", label_smoothing,
                          "; it is a share of the target and must be in [0, 1]"});
  }

  constexpr std::size_t sums_per_row() const { return label_smoothing > 0 ? 3 : 2; }

  template <class T>
  TargetShares<accumulate_t<T>> shares_of(const Shape& logits) const {
    return {label_smoothing, logits.back().extent()};
  }

  /// The losses of `count` rows and the gradients of their logits: on the host row by row, on a
  /// device in several passes over all rows.
  template <class Frame, class T>
  void whole_rows(Frame& frame, std::size_t count, const LossOutput<T>& out) const {
    using A = accumulate_t<T>;
    auto& backend = frame.backend();
    if constexpr (DeviceBackend<std::remove_cvref_t<decltype(backend)>>) {
      const Buffer memory = frame.pool().take(count * (1 + sums_per_row()) * sizeof(A));
      A* const largest = static_cast<A*>(memory.data());
      A* const sums = largest + count;
      put_largest(backend, count, out.rows, largest);
      put_sums(backend, count, out, largest, sums);
      put_loss(backend, count, out, largest, sums);
    } else {
      backend.for_each(count, WholeRow<T>{out});
    }
  }

  /// The same for a rank with some classes of each row. A rank without classes takes part with
  /// minus infinity as its largest logit, and with sums of 0.
  template <class Frame, class T>
  void split_rows(Frame& frame, std::size_t count, const LossOutput<T>& out) const {
    auto& backend = frame.backend();
    auto largest_here = frame.template exchange_input<0>();
    put_largest(backend, count, out.rows, largest_here.writable().data());
    const auto largest = frame.template exchange<0>(std::move(largest_here));

    auto sums_here = frame.template exchange_input<1>();
    put_sums(backend, count, out, largest.view().data(), sums_here.writable().data());
    const auto sums = frame.template exchange<1>(std::move(sums_here));
    put_loss(backend, count, out, largest.view().data(), sums.view().data());
  }

  template <class B, class T>
  static void put_largest(B& backend, std::size_t count, const LogitRows<T>& rows,
                          accumulate_t<T>* largest) {
    using A = accumulate_t<T>;
    reduce_each(backend, count, rows.classes, -std::numeric_limits<A>::infinity(),
                LogitValues<T>{rows}, Largest{}, PutInto<A>{largest});
  }

  template <class B, class T>
  void put_sums(B& backend, std::size_t count, const LossOutput<T>& out,
                const accumulate_t<T>* largest, accumulate_t<T>* sums) const {
    using A = accumulate_t<T>;
    const PutRowSums<T> put{out.rows, largest, sums_per_row(), sums};
    if constexpr (DeviceBackend<B>) {
      reduce_each(backend, count, out.rows.classes, LogitSums<A>{},
                  LogitTerms<T>{out.rows, largest}, Plus{}, put);
    } else {
      backend.for_each(count, SumsOfRow<T>{out, put});
    }
  }

  template <class B, class T>
  void put_loss(B& backend, std::size_t count, const LossOutput<T>& out,
                const accumulate_t<T>* largest, const accumulate_t<T>* sums) const {
    const WholeRows<accumulate_t<T>> whole{largest, sums, sums_per_row()};
    if constexpr (DeviceBackend<B>) {
      backend.for_each(count, PutRowLoss<T>{out, whole});
      for_each_in_rows(backend, count, out.rows.classes, PutGradient<T>{out, whole});
    } else {
      backend.for_each(count, EndOfRow<T>{out, whole});
    }
  }
};

}  // namespace detail

/// loss = -Σ_rows Σ_k target_k log softmax(logits)_k / rows, where a row is one run along the
/// innermost axis (`feature`: the classes) of the whole batch, and
/// target_k = (1 - label_smoothing) [k is the label] + label_smoothing / classes. The loss can also
/// be the sum, without / rows. For ignored labels and weights of classes see MaskedCrossEntropy.
///
/// logits per rank   [..., classes], [..., classes/P] or a share of the rows
/// labels            [...], the logits' shape without the innermost axis
/// layout   logits L, gradient L: Invariant, Sharded<feature>, Sharded<batch>, Sharded<sequence>;
///          labels Invariant, or split along with the rows of logits
/// sends    Invariant         nothing
///          Sharded<feature>  an all-reduce (max) of one number a row, then one (sum) of two a row,
///                            of three with label smoothing
///          else              an all-reduce of one double
/// throws   argument_error, on every rank and before anything is sent or written, for a label that
///          is not a class (if labels are split, only on the rank that has it), for an empty batch,
///          and for a label_smoothing outside [0, 1]; shape_error
/// source   label smoothing as in torch.nn.CrossEntropyLoss
struct CrossEntropy {
  static constexpr const char* name = "cross-entropy";  ///< in errors

  double label_smoothing = 0;                     ///< as in the formula, in [0, 1]
  LossReduction reduction = LossReduction::mean;  ///< by rows, or by 1

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("label_smoothing", label_smoothing);
    f("reduction", detail::word(reduction));
  }

  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges = detail::SoftmaxLoss<false>::exchanges<L>;

  template <Layout L>
  constexpr auto exchange_shapes(const Shape& logits) const {
    return loss().exchange_shapes<L>(logits);
  }

  void require_target(const Shape& logits, const Shape& labels) const;

  template <class Frame, Real T, Layout L, class Labels>
  auto operator()(Frame& frame, View<const T, L> logits, const Labels& labels,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    return loss()(frame, logits, labels, gradient);
  }
  ///@}

 private:
  constexpr detail::SoftmaxLoss<false> loss() const {
    return {label_smoothing, {.loss = name, .reduction = reduction}};
  }
};

/// CrossEntropy whose rows count by the weights w of their classes, and not at all if their label
/// is `ignored`, such as padding:
///
/// loss = -Σ_rows Σ_k w_k target_k log softmax(logits)_k / Σ_rows w_label
///
/// over the rows of the whole step whose label is not ignored; the others have no loss and no
/// gradient. Without class weights each w is 1.
///
///     train_step(model, ids, labels, MaskedCrossEntropy{}, optimizer);
///     step.add(ids, labels, MaskedCrossEntropy{.counted = n});  // n of all batches of the step
///     const MaskedCrossEntropy weighted{.class_weights = weights.view()};
///     train_step(model, x, labels, weighted, optimizer);
///
/// layout   as CrossEntropy
/// sends    as CrossEntropy; for logits whose rows are split also an all-reduce of one double
/// throws   as CrossEntropy; shape_error for another number of weights, argument_error for a weight
///          that is negative or not finite, if no label counts, and without `counted` for the mean
///          of a batch that is a part of its step and of a recorded step
/// source   `ignore_index` and `weight` of torch.nn.CrossEntropyLoss
struct MaskedCrossEntropy {
  static constexpr const char* name = "cross-entropy";  ///< in errors

  double label_smoothing = 0;    ///< as in the formula, in [0, 1]
  std::int32_t ignored = -100;   ///< the label of rows that do not count
  detail::LabelSum counted{};    ///< Σ_rows w_label of the whole step; 0 to add it up
  ClassWeights class_weights{};  ///< w, one for each class
  LossReduction reduction = LossReduction::mean;  ///< by `counted`, or by 1

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("label_smoothing", label_smoothing);
    f("ignored", ignored);
    f("counted", counted.value);
    f("class_weights", class_weights);
    f("reduction", detail::word(reduction));
  }

  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges = detail::SoftmaxLoss<true>::exchanges<L>;

  template <Layout L>
  constexpr auto exchange_shapes(const Shape& logits) const {
    return loss().exchange_shapes<L>(logits);
  }

  void require_target(const Shape& logits, const Shape& labels) const;

  template <class Frame, Real T, Layout L, class Labels>
  auto operator()(Frame& frame, View<const T, L> logits, const Labels& labels,
                  View<accumulate_t<T>, dual_t<L>> gradient) const {
    return loss()(frame, logits, labels, gradient);
  }
  ///@}

 private:
  constexpr detail::SoftmaxLoss<true> loss() const {
    return {label_smoothing, {name, reduction, ignored, class_weights, counted}};
  }
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void CrossEntropy::require_target(const Shape& logits, const Shape& labels) const {
  loss().require(logits, labels);
}

SHARDWISE_INLINE void MaskedCrossEntropy::require_target(const Shape& logits,
                                                         const Shape& labels) const {
  loss().require(logits, labels);
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
