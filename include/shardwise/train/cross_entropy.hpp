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

/// The loss and the gradient of a row.
template <class T>
struct WholeRow {
  using A = accumulate_t<T>;

  LogitRows<T> rows;
  TargetShares<A> shares;
  A terms;
  A* losses;
  A* gradient;

  constexpr void operator()(std::size_t row) const {
    const A largest = largest_of(rows.of(row), rows.classes);
    const RowSums<A> sums = sums_of(rows.of(row), rows.classes, rows.label(row), largest, shares);
    losses[row] = row_loss(sums, shares);
    row_gradient(rows.of(row), rows.classes, rows.label(row), largest, sums.exponentials, shares,
                 terms, gradient + row * rows.classes);
  }
};

/// The largest of the rank's logits of a row.
template <class T>
struct LargestOfRow {
  LogitRows<T> rows;
  accumulate_t<T>* largest;

  constexpr void operator()(std::size_t row) const {
    largest[row] = largest_of(rows.of(row), rows.classes);
  }
};

/// The sums over the rank's logits of a row, of which `width` are given out.
template <class T>
struct SumsOfRow {
  using A = accumulate_t<T>;

  LogitRows<T> rows;
  TargetShares<A> shares;
  const A* largest;  // of whole rows
  std::size_t width;
  A* sums;

  constexpr void operator()(std::size_t row) const {
    const RowSums<A> here =
        sums_of(rows.of(row), rows.classes, rows.label(row), largest[row], shares);
    sums[row * width] = here.exponentials;
    sums[row * width + 1] = here.label;
    if (width > 2) sums[row * width + 2] = here.all;
  }
};

/// The loss of a row, and the gradient of the rank's logits of it.
template <class T>
struct SplitRow {
  using A = accumulate_t<T>;

  LogitRows<T> rows;
  TargetShares<A> shares;
  A terms;
  const A* largest;  // of whole rows, as are the sums
  std::size_t width;
  const A* sums;
  A* losses;
  A* gradient;

  constexpr void operator()(std::size_t row) const {
    const A* const of_row = sums + row * width;
    const RowSums<A> whole{of_row[0], of_row[1], width > 2 ? of_row[2] : A(0)};
    losses[row] = row_loss(whole, shares);
    row_gradient(rows.of(row), rows.classes, rows.label(row), largest[row], whole.exponentials,
                 shares, terms, gradient + row * rows.classes);
  }
};

/// The loss of a row, to be added up.
template <class A>
struct LossOfRow {
  const A* losses;
  constexpr double operator()(std::size_t row) const { return static_cast<double>(losses[row]); }
};

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
///          else              an all-reduce of one double
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
      std::conditional_t<
          std::same_as<L, Sharded<Axis::feature>>,
          std::tuple<Exchange<Redistribute<Partial, Invariant>, Reduction::max>,
                     Exchange<Redistribute<Partial, Invariant>>>,
          std::tuple<Exchange<Redistribute<Partial, Invariant>, Reduction::sum, double>>>>;

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
    detail::check_labels(frame.backend(), frame.pool(), logits.global(), labels);
    const auto here = detail::part_here<detail::rows_layout_t<L>>(frame.backend(), frame.pool(),
                                                                  labels, logits.place());
    const detail::LogitRows<T> rows(logits, here.view());
    const std::size_t count = here.view().size();
    const Buffer memory = frame.pool().take(count * sizeof(accumulate_t<T>));
    auto* const losses = static_cast<accumulate_t<T>*>(memory.data());
    const detail::LossOfRow<accumulate_t<T>> loss{losses};
    if constexpr (std::same_as<L, Sharded<Axis::feature>>) {
      split_rows(frame, rows, count, logits.global(), terms, losses, gradient.data());
      return frame.sum(count, loss) / terms;
    } else {
      frame.backend().for_each(
          count, detail::WholeRow<T>{rows, shares_of<T>(logits.global()),
                                     static_cast<accumulate_t<T>>(terms), losses, gradient.data()});
      if constexpr (ShardedLayout<L>) {
        return frame.template sum_of_ranks<0>(count, loss) / terms;
      } else {
        return frame.sum(count, loss) / terms;
      }
    }
  }
  ///@}

 private:
  constexpr std::size_t sums_per_row() const { return label_smoothing > 0 ? 3 : 2; }

  void check_smoothing() const {
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
      throw argument_error({"cross-entropy: label_smoothing is ", label_smoothing,
                            "; it is a share of the target and must be in [0, 1]"});
    }
  }

  template <class T>
  detail::TargetShares<accumulate_t<T>> shares_of(const Shape& logits) const {
    return {label_smoothing, logits.back().extent()};
  }

  /// The losses of `count` rows, of each of which the rank holds some classes, and their gradients.
  /// A rank that holds none joins with the largest number of nothing, minus infinity, and sums of
  /// 0.
  template <class Frame, class T>
  void split_rows(Frame& frame, const detail::LogitRows<T>& rows, std::size_t count,
                  const Shape& logits, double terms, accumulate_t<T>* losses,
                  accumulate_t<T>* gradient) const {
    const auto shares = shares_of<T>(logits);
    const std::size_t width = sums_per_row();

    auto largest_here = frame.template exchange_input<0>();
    frame.backend().for_each(count, detail::LargestOfRow<T>{rows, largest_here.writable().data()});
    const auto largest = frame.template exchange<0>(std::move(largest_here));

    auto sums_here = frame.template exchange_input<1>();
    frame.backend().for_each(count, detail::SumsOfRow<T>{rows, shares, largest.view().data(), width,
                                                         sums_here.writable().data()});
    const auto sums = frame.template exchange<1>(std::move(sums_here));

    frame.backend().for_each(
        count,
        detail::SplitRow<T>{rows, shares, static_cast<accumulate_t<T>>(terms),
                            largest.view().data(), width, sums.view().data(), losses, gradient});
  }
};

}  // namespace shardwise
