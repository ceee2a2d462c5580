#pragma once
// Softmax cross-entropy of rows of logits, as functions for a backend's loops: what one row adds,
// its loss, and the gradient of its logits.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/independent_loop.hpp"
#include "shardwise/train/labels.hpp"

namespace shardwise::detail {

/// Sums over the logits of a row, after the largest logit of the whole row is subtracted.
template <class A>
struct LogitSums {
  A exponentials;
  A all;  // by the weights of the classes

  friend constexpr LogitSums operator+(const LogitSums& a, const LogitSums& b) {
    return {a.exponentials + b.exponentials, a.all + b.all};
  }
};

/// The sums that give the loss of a row.
template <class A>
struct RowSums {
  A exponentials;
  A label;  // the label's logit minus the largest one; 0 if another rank has it
  A all;    // 0 without label smoothing
};

/// The target distribution of a row before class weights: `other` for every class, plus `label` for
/// the label.
template <class A>
struct TargetShares {
  A label;
  A other;

  constexpr TargetShares(double smoothing, std::size_t classes)
      : label(static_cast<A>(1 - smoothing)),
        other(static_cast<A>(smoothing / static_cast<double>(classes))) {}
};

/// The rank's logits of a row.
template <class T>
struct LogitValues {
  LogitRows<T> rows;

  constexpr auto operator()(std::size_t row) const {
    return
        [logits = rows.of(row)](std::size_t k) { return static_cast<accumulate_t<T>>(logits[k]); };
  }
};

/// The terms of the rank's logits in the sums of the row.
template <class T>
struct LogitTerms {
  using A = accumulate_t<T>;

  LogitRows<T> rows;
  const A* largest;  // of whole rows

  constexpr auto operator()(std::size_t row) const {
    return [logits = rows.of(row), first = rows.first, weights = rows.weights,
            of_row = largest[row]](std::size_t k) {
      const A shifted = static_cast<A>(logits[k]) - of_row;
      return LogitSums<A>{exponential(shifted), weights.template of<A>(first + k) * shifted};
    };
  }
};

/// With the label's logit, if the rank has it.
template <class A, class T>
constexpr RowSums<A> with_label(const LogitRows<T>& rows, std::size_t row, A largest,
                                const LogitSums<A>& sums) {
  const std::size_t label = rows.label(row);
  const A of_label = label < rows.classes ? static_cast<A>(rows.of(row)[label]) - largest : A(0);
  return {sums.exponentials, of_label, sums.all};
}

/// Σ_k weight_k target_k of a row; 1 without weights.
template <class A, class T>
constexpr A weight_of_row(const LogitRows<T>& rows, std::size_t row,
                          const TargetShares<A>& shares) {
  const WeightsThere& weights = rows.weights;
  if (weights.weights == nullptr) return 1;
  const A of_label = weights.of<A>(rows.first + rows.label(row));
  return shares.label * of_label + shares.other * static_cast<A>(*weights.sum);
}

/// -Σ_k weight_k target_k log softmax_k, with log softmax_k = shifted_k - log Σ exp(shifted);
/// `of_label` is the weight of the label, `of_row` that of the row.
template <class A>
constexpr A row_loss(const RowSums<A>& sums, const TargetShares<A>& shares, A of_label, A of_row) {
  const A smoothed = shares.other > 0 ? shares.other * sums.all : A(0);
  return of_row * std::log(sums.exponentials) - shares.label * of_label * sums.label - smoothed;
}

/// gradient_k = (softmax_k of_row - weight_k target_k) / divisor, for the rank's logits k of one
/// row; 0 if the row does not count.
template <class T>
struct GradientOfRow {
  using A = accumulate_t<T>;

  bool counts;
  const T* logits;
  std::size_t label;
  std::size_t first;
  WeightsThere weights;
  A largest;
  A scale;  // Σ weight_k target_k / Σ exp(shifted_k) / divisor
  TargetShares<A> shares;
  A divisor;
  A* gradient;

  constexpr void operator()(std::size_t k) const {
    A value = exponential(static_cast<A>(logits[k]) - largest) * scale;
    if (shares.other > 0) value -= target_of(k, shares.other);
    if (k == label) value -= target_of(k, shares.label);
    gradient[k] = counts ? value : A(0);
  }

  /// The same for all, where `gradient` has the exponentials.
  void put_in_place(std::size_t classes) const {
    if (!counts) return void(std::fill_n(gradient, classes, A(0)));
    plain_loop(classes, [to = gradient, by = scale](std::size_t k) { to[k] *= by; });
    if (shares.other > 0)
      for (std::size_t k = 0; k < classes; ++k) gradient[k] -= target_of(k, shares.other);
    if (label < classes) gradient[label] -= target_of(label, shares.label);
  }

 private:
  constexpr A target_of(std::size_t k, A share) const {
    return weights.of<A>(first + k) * share / divisor;
  }
};

/// The output of a loss: the loss of each row, and the gradient of the rank's logits.
template <class T>
struct LossOutput {
  using A = accumulate_t<T>;

  LogitRows<T> rows;
  TargetShares<A> shares;
  A divisor;
  A* losses;
  A* gradient;

  constexpr void put_loss(std::size_t row, const RowSums<A>& sums) const {
    const A of_label = rows.weights.template of<A>(rows.first + rows.label(row));
    const A of_row = weight_of_row(rows, row, shares);
    losses[row] = rows.counts(row) ? row_loss(sums, shares, of_label, of_row) : A(0);
  }
  constexpr GradientOfRow<T> gradient_of(std::size_t row, A largest, A exponentials) const {
    return {rows.counts(row),
            rows.of(row),
            rows.label(row),
            rows.first,
            rows.weights,
            largest,
            weight_of_row(rows, row, shares) / exponentials / divisor,
            shares,
            divisor,
            gradient + row * rows.classes};
  }

  /// On the host: writes the exponentials of a row, computed once by a loop that has vectors, where
  /// its gradient will be; returns what the rank's logits add to the sums of the row.
  LogitSums<A> put_exponentials(std::size_t row, A largest) const {
    const T* const logits = rows.of(row);
    A* const to = gradient + row * rows.classes;
    plain_loop(rows.classes,
               [=](std::size_t k) { to[k] = exponential(static_cast<A>(logits[k]) - largest); });
    const A sum = lane_sum<A>(rows.classes, [to](std::size_t k) { return to[k]; });
    if (!(shares.other > 0)) return {sum, A(0)};
    return {sum, lane_sum<A>(rows.classes, [=, this](std::size_t k) {
              return rows.weights.template of<A>(rows.first + k) *
                     (static_cast<A>(logits[k]) - largest);
            })};
  }
};

/// Stores the sums of a row for an exchange.
template <class T>
struct PutRowSums {
  using A = accumulate_t<T>;

  LogitRows<T> rows;
  const A* largest;   // of each whole row
  std::size_t width;  // numbers for each row: exponentials, label and, if it is 3, all
  A* sums;

  constexpr void operator()(std::size_t row, const LogitSums<A>& here) const {
    const RowSums<A> of_row = with_label(rows, row, largest[row], here);
    sums[row * width] = of_row.exponentials;
    sums[row * width + 1] = of_row.label;
    if (width > 2) sums[row * width + 2] = of_row.all;
  }
};

/// The numbers of whole rows.
template <class A>
struct WholeRows {
  const A* largest;
  const A* sums;
  std::size_t width;

  constexpr RowSums<A> operator[](std::size_t row) const {
    const A* const of_row = sums + row * width;
    return {of_row[0], of_row[1], width > 2 ? of_row[2] : A(0)};
  }
};

/// The loss of a row.
template <class T>
struct PutRowLoss {
  LossOutput<T> out;
  WholeRows<accumulate_t<T>> whole;

  constexpr void operator()(std::size_t row) const { out.put_loss(row, whole[row]); }
};

/// The gradient of the rank's logits of a row.
template <class T>
struct PutGradient {
  LossOutput<T> out;
  WholeRows<accumulate_t<T>> whole;

  constexpr GradientOfRow<T> operator()(std::size_t row) const {
    return out.gradient_of(row, whole.largest[row], whole[row].exponentials);
  }
};

/// Loss and gradient of a row whose logits are all on this rank.
template <class T>
struct WholeRow {
  static constexpr bool is_loop = true;

  LossOutput<T> out;

  void operator()(std::size_t row) const {
    using A = accumulate_t<T>;
    const LogitRows<T>& rows = out.rows;
    const A largest = largest_of(rows.of(row), rows.classes);
    const LogitSums<A> sums = out.put_exponentials(row, largest);
    out.put_loss(row, with_label(rows, row, largest, sums));
    out.gradient_of(row, largest, sums.exponentials).put_in_place(rows.classes);
  }
};

/// What the rank's logits of a row add to the sums of the row.
template <class T>
struct SumsOfRow {
  static constexpr bool is_loop = true;

  LossOutput<T> out;
  PutRowSums<T> put;

  void operator()(std::size_t row) const { put(row, out.put_exponentials(row, put.largest[row])); }
};

/// Loss and gradient of a row after SumsOfRow.
template <class T>
struct EndOfRow {
  static constexpr bool is_loop = true;

  LossOutput<T> out;
  WholeRows<accumulate_t<T>> whole;

  void operator()(std::size_t row) const {
    out.put_loss(row, whole[row]);
    out.gradient_of(row, whole.largest[row], whole[row].exponentials)
        .put_in_place(out.rows.classes);
  }
};

/// The loss of a row as a summand; NaN if its label is not a class.
template <class A>
struct LossOfRow {
  const A* losses;
  IsNoClass is_no_class;
  constexpr double operator()(std::size_t row) const {
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    return is_no_class(row) == 0 ? static_cast<double>(losses[row]) : none;
  }
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_COMPILED

namespace shardwise::detail {

SHARDWISE_EXTERN template void independent_loop(std::size_t, const WholeRow<float>&);
SHARDWISE_EXTERN template void independent_loop(std::size_t, const SumsOfRow<float>&);
SHARDWISE_EXTERN template void independent_loop(std::size_t, const EndOfRow<float>&);
SHARDWISE_EXTERN template void independent_loop(std::size_t, const WholeRow<double>&);
SHARDWISE_EXTERN template void independent_loop(std::size_t, const SumsOfRow<double>&);
SHARDWISE_EXTERN template void independent_loop(std::size_t, const EndOfRow<double>&);
SHARDWISE_EXTERN template void independent_loop(std::size_t, const WholeRow<bf16>&);
SHARDWISE_EXTERN template void independent_loop(std::size_t, const SumsOfRow<bf16>&);
SHARDWISE_EXTERN template void independent_loop(std::size_t, const EndOfRow<bf16>&);

}  // namespace shardwise::detail

#endif
