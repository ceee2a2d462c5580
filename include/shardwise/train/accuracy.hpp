#pragma once
// How often a model is right.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/train/labels.hpp"

namespace shardwise {

namespace detail {

/// How many of the logits first, first + 1, ... come before the label's, number `label` with value
/// `of_label`: those that are larger, equal ones with a smaller number, and every NaN. A label
/// whose logit is NaN comes last.
template <class A, class T>
constexpr std::int32_t ahead_of_label(const T* logits, std::size_t count, std::size_t first,
                                      std::size_t label, A of_label) {
  std::int32_t ahead = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const A z = static_cast<A>(logits[k]);
    const bool is_behind = z < of_label || (z == of_label && first + k >= label);
    if (!is_behind && (first + k != label || z != z)) ++ahead;
  }
  return ahead;
}

/// One tensor out of the ranks' summands, combined by `reduction`.
template <class Context, class T>
Value<T, Invariant> combined(Run<Context>& run, const Value<T, Partial>& in, Reduction reduction) {
  Value<T, Invariant> out(run.pool, in.global(), run.place());
  redistribute(run.ranks, run.pool, in.view(), out.writable(), reduction);
  return out;
}

/// Rows of which fewer than k logits come before the label's, of logits that are split by class.
template <class Context, class T, Layout L>
std::size_t top_k_of_split(Run<Context>& run, View<const T, L> logits,
                           View<const std::int32_t, Invariant> labels, std::size_t k) {
  using A = accumulate_t<T>;
  const Interval mine = local_block<L>(logits.global(), logits.place());
  const auto logits_of = [&](std::size_t row) { return logits.data() + row * mine.size; };
  Value<A, Partial> known(run.pool, labels.global(), run.place());
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::size_t local = static_cast<std::size_t>(labels[row]) - mine.offset;
    known.writable()[row] = local < mine.size ? static_cast<A>(logits_of(row)[local])
                                              : -std::numeric_limits<A>::infinity();
  }
  const auto of_label = combined(run, known, Reduction::max);
  Value<std::int32_t, Partial> ahead_here(run.pool, labels.global(), run.place());
  for (std::size_t row = 0; row < labels.size(); ++row) {
    ahead_here.writable()[row] =
        ahead_of_label(logits_of(row), mine.size, mine.offset,
                       static_cast<std::size_t>(labels[row]), of_label.view()[row]);
  }
  const auto ahead = combined(run, ahead_here, Reduction::sum);
  std::size_t count = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (static_cast<std::size_t>(ahead.view()[row]) < k) ++count;
  }
  return count;
}

/// The same of the rank's whole rows.
template <class T, Layout L, Layout Along>
std::int64_t top_k_of_rows(View<const T, L> logits, View<const std::int32_t, Along> labels,
                           std::size_t k) {
  const std::size_t classes = logits.columns();
  std::int64_t count = 0;
  for_each_label(logits, labels, [&](std::size_t row, std::size_t label) {
    const T* z = logits.data() + row * classes;
    const auto of_label = static_cast<accumulate_t<T>>(z[label]);
    if (static_cast<std::size_t>(ahead_of_label(z, classes, 0, label, of_label)) < k) ++count;
  });
  return count;
}

inline void check_k(std::size_t k, std::size_t classes) {
  if (k > 0 && k <= classes) return;
  throw argument_error("count_top_k: k is " + std::to_string(k) + ", but there are " +
                       std::to_string(classes) + " classes: it must be in [1, classes]");
}

}  // namespace detail

/// The number of rows of the whole batch in which the model, in evaluation, gives the label one of
/// its k largest logits; of equal ones the first count, and a NaN counts as larger than any number
/// and is never the label's. A collective; the same number on every rank.
/// layout   logits Invariant, Sharded<feature>, Sharded<batch> or Sharded<sequence>; labels
///          Invariant, or split along with the rows of logits
/// sends    what forward does, and of logits that are
///            Sharded<feature>     an all-reduce (max) of one number a row, and one (sum) of one
///                                 int32 a row
///            Sharded otherwise    an all-reduce of one int64
/// throws   argument_error for k = 0 or above the number of classes; as CrossEntropy for labels
///          that do not fit
template <class M, class Labels>
std::size_t count_top_k(M& model, typename M::input_view x, const Labels& given_labels,
                        std::size_t k) {
  using L = typename M::output_layout;
  static_assert(std::same_as<L, Invariant> || std::same_as<L, Sharded<Axis::feature>> ||
                    std::same_as<L, Sharded<Axis::batch>> ||
                    std::same_as<L, Sharded<Axis::sequence>>,
                "count_top_k and count_correct take logits that are Invariant, or Sharded by "
                "feature (classes), batch or sequence. Let the model end in one of those: "
                "Ends<Offered, Invariant>.");
  const auto logits = model.evaluate(x);
  const auto labels = detail::labels_along<L>(given_labels);
  detail::check_place(logits, labels);
  detail::check_labels(logits.global(), labels);
  detail::check_k(k, logits.global().back().extent());
  auto& run = model.run();
  if constexpr (std::same_as<L, Sharded<Axis::feature>>) {
    return detail::top_k_of_split(run, logits, labels, k);
  } else if constexpr (std::same_as<L, Invariant>) {
    return static_cast<std::size_t>(detail::top_k_of_rows(logits, labels, k));
  } else {
    Value<std::int64_t, Partial> count(run.pool, Shape{}, run.place());
    count.writable()[0] = detail::top_k_of_rows(logits, labels, k);
    return static_cast<std::size_t>(detail::combined(run, count, Reduction::sum).view()[0]);
  }
}

/// The number of rows whose largest logit is the label's: `count_top_k` with k = 1.
template <class M, class Labels>
std::size_t count_correct(M& model, typename M::input_view x, const Labels& labels) {
  return count_top_k(model, x, labels, 1);
}

}  // namespace shardwise
