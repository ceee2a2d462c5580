#pragma once
// Softmax cross-entropy with class indices, on whole logits or on logits that are split by class.

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/train/labels.hpp"

namespace shardwise {

namespace detail {

/// What a row of logits adds up to, each logit less the largest one of the whole row.
template <class A>
struct RowSums {
  A exponentials = 0;
  A label = 0;  // the label's logit
  A all = 0;    // all logits; 0 without label smoothing
};

/// The target distribution of a row: `label` at its label and `other` on top of that everywhere.
template <class A>
struct TargetShares {
  A label;
  A other;

  TargetShares(double smoothing, std::size_t classes)
      : label(static_cast<A>(1 - smoothing)),
        other(static_cast<A>(smoothing / static_cast<double>(classes))) {}
};

/// The sums over `count` logits, of which number `label` is the label's; beyond them it is
/// nobody's.
template <class A, class T>
constexpr RowSums<A> sums_of(const T* logits, std::size_t count, std::size_t label, A largest,
                             const TargetShares<A>& shares) {
  RowSums<A> sums;
  for (std::size_t k = 0; k < count; ++k) {
    const A shifted = static_cast<A>(logits[k]) - largest;
    sums.exponentials += std::exp(shifted);
    if (shares.other > 0) sums.all += shifted;
  }
  if (label < count) sums.label = static_cast<A>(logits[label]) - largest;
  return sums;
}

/// -Σ_k target_k log softmax_k, with log softmax_k = shifted_k - log Σ exp(shifted).
template <class A>
constexpr A row_loss(const RowSums<A>& sums, const TargetShares<A>& shares) {
  const A smoothed = shares.other > 0 ? shares.other * sums.all : A(0);
  return std::log(sums.exponentials) - shares.label * sums.label - smoothed;
}

/// gradient_k = (softmax_k - target_k) / terms.
template <class A, class T>
constexpr void row_gradient(const T* logits, std::size_t count, std::size_t label, A largest,
                            A exponentials, const TargetShares<A>& shares, A terms, A* gradient) {
  for (std::size_t k = 0; k < count; ++k) {
    const A probability = std::exp(static_cast<A>(logits[k]) - largest) / exponentials;
    const A target = k == label ? shares.label + shares.other : shares.other;
    gradient[k] = (probability - target) / terms;
  }
}

}  // namespace detail

/// loss = -Σ_rows Σ_k target_k log softmax(logits)_k / rows, where a row is one run along the
/// innermost axis (`feature`: the classes) of the whole batch, and
/// target_k = (1 - label_smoothing) [k is the label] + label_smoothing / classes.
///
/// logits per rank   [..., classes], [..., classes/P] or a share of the rows
/// labels            [...], the logits' shape without the innermost axis
/// layout   logits L, gradient L: Invariant, Sharded<feature>, Sharded<batch>, Sharded<sequence>;
///          labels Invariant, or split along with the rows of logits
/// sends    Invariant         nothing
///          Sharded<feature>  an all-reduce (max) of one number a row, then one (sum) of two a row,
///                            of three with label smoothing
///          else              an all-reduce of one number
/// throws   argument_error, on every rank and before anything is sent or written, for a label that
///          is no class (if labels are split, on the rank that has it), an empty batch, or
///          label_smoothing outside [0, 1]; shape_error
/// source   label smoothing as torch.nn.CrossEntropyLoss defines it
struct CrossEntropy {
  double label_smoothing = 0;  ///< as in the formula, in [0, 1]

  ///@{
  /// As `Loss` says.
  template <Layout L>
  using exchanges = std::conditional_t<
      std::same_as<L, Invariant>, std::tuple<>,
      std::conditional_t<std::same_as<L, Sharded<Axis::feature>>,
                         std::tuple<Exchange<Redistribute<Partial, Invariant>, Reduction::max>,
                                    Exchange<Redistribute<Partial, Invariant>>>,
                         std::tuple<Exchange<Redistribute<Partial, Invariant>>>>>;

  template <Layout L>
  constexpr auto exchange_shapes(const Shape& logits) const {
    std::array<Shape, std::tuple_size_v<exchanges<L>>> shapes{};
    if constexpr (std::same_as<L, Sharded<Axis::feature>>) {
      shapes[0] = logits.with_back({Axis::feature, 1});
      shapes[1] = logits.with_back({Axis::feature, sums_per_row()});
    }
    return shapes;
  }

  template <class Frame, Real T, Layout L, class Labels>
  double operator()(Frame& frame, View<const T, L> logits, const Labels& given_labels,
                    View<accumulate_t<T>, dual_t<L>> gradient) const {
    static_assert(
        std::same_as<L, Invariant> || std::same_as<L, Sharded<Axis::feature>> ||
            std::same_as<L, Sharded<Axis::batch>> || std::same_as<L, Sharded<Axis::sequence>>,
        "CrossEntropy takes logits that are Invariant, or Sharded by feature (classes), "
        "batch or sequence. Let the model end in one of those: Ends<Offered, Invariant>.");
    check_smoothing();
    const double terms = frame.terms_of_step(logits.global().rows());
    const auto labels = detail::labels_along<L>(given_labels);
    detail::check_place(logits, labels);
    detail::check_labels(logits.global(), labels);
    if constexpr (std::same_as<L, Sharded<Axis::feature>>) {
      return split_rows(frame, logits, labels, gradient, terms) / terms;
    } else {
      const double mine = whole_rows(logits, labels, gradient, terms);
      if constexpr (ShardedLayout<L>) {
        return frame.template sum_of_ranks<0>(mine) / terms;
      } else {
        return mine / terms;
      }
    }
  }
  ///@}

 private:
  constexpr std::size_t sums_per_row() const { return label_smoothing > 0 ? 3 : 2; }

  void check_smoothing() const {
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
      throw argument_error("cross-entropy: label_smoothing is " + std::to_string(label_smoothing) +
                           "; it is a share of the target and must be in [0, 1]");
    }
  }

  /// The sum over the rank's rows, each of them whole.
  template <class T, Layout L, Layout Along>
  double whole_rows(View<const T, L> logits, View<const std::int32_t, Along> labels,
                    View<accumulate_t<T>, L> gradient, double terms) const {
    using A = accumulate_t<T>;
    const std::size_t classes = logits.columns();
    const detail::TargetShares<A> shares(label_smoothing, classes);
    double sum = 0;
    detail::for_each_label(logits, labels, [&](std::size_t row, std::size_t label) {
      const T* z = logits.data() + row * classes;
      const A largest = detail::largest_of(z, classes);
      const auto sums = detail::sums_of(z, classes, label, largest, shares);
      sum += static_cast<double>(detail::row_loss(sums, shares));
      detail::row_gradient(z, classes, label, largest, sums.exponentials, shares,
                           static_cast<A>(terms), gradient.data() + row * classes);
    });
    return sum;
  }

  /// The sum over all rows, of each of which the rank holds some classes. A rank that holds none
  /// joins with the largest number of nothing, minus infinity, and sums of 0.
  template <class Frame, class T, Layout L>
  double split_rows(Frame& frame, View<const T, L> logits,
                    View<const std::int32_t, Invariant> labels, View<accumulate_t<T>, L> gradient,
                    double terms) const {
    using A = accumulate_t<T>;
    const Interval mine = local_block<L>(logits.global(), logits.place());
    const detail::TargetShares<A> shares(label_smoothing, logits.global().back().extent());
    const std::size_t rows = logits.rows();
    const std::size_t width = sums_per_row();
    const auto logits_of = [&](std::size_t row) { return logits.data() + row * mine.size; };
    const auto local_label = [&](std::size_t row) {  // beyond mine.size if another rank has it
      return static_cast<std::size_t>(labels[row]) - mine.offset;
    };

    auto largest_here = frame.template exchange_input<0>();
    A* const my_largest = largest_here.writable().data();
    for (std::size_t row = 0; row < rows; ++row) {
      my_largest[row] = detail::largest_of(logits_of(row), mine.size);
    }
    const auto maxima = frame.template exchange<0>(std::move(largest_here));
    const A* const largest = maxima.view().data();

    auto sums_here = frame.template exchange_input<1>();
    A* const my_sums = sums_here.writable().data();
    for (std::size_t row = 0; row < rows; ++row) {
      const auto sums =
          detail::sums_of(logits_of(row), mine.size, local_label(row), largest[row], shares);
      my_sums[row * width] = sums.exponentials;
      my_sums[row * width + 1] = sums.label;
      if (width > 2) my_sums[row * width + 2] = sums.all;
    }
    const auto row_sums = frame.template exchange<1>(std::move(sums_here));

    double sum = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      const A* const of_row = row_sums.view().data() + row * width;
      const detail::RowSums<A> sums{of_row[0], of_row[1], width > 2 ? of_row[2] : A(0)};
      sum += static_cast<double>(detail::row_loss(sums, shares));
      detail::row_gradient(logits_of(row), mine.size, local_label(row), largest[row],
                           sums.exponentials, shares, static_cast<A>(terms),
                           gradient.data() + row * mine.size);
    }
    return sum;
  }
};

}  // namespace shardwise
