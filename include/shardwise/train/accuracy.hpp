#pragma once
// How often a model is right.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "shardwise/layout/view.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/train/labels.hpp"

namespace shardwise {

namespace detail {

/// The number of the first logit that equals `largest`, or `count`.
template <class A, class T>
constexpr std::size_t first_equal(const T* logits, std::size_t count, A largest) {
  std::size_t k = 0;
  while (k < count && !(static_cast<A>(logits[k]) == largest)) ++k;
  return k;
}

/// One tensor out of the ranks' summands, combined by `reduction`.
template <class Context, class T>
Value<T, Invariant> combined(Run<Context>& run, const Value<T, Partial>& in, Reduction reduction) {
  Value<T, Invariant> out(run.pool, in.global(), run.place());
  redistribute(run.ranks, run.pool, in.view(), out.writable(), reduction);
  return out;
}

/// Rows whose largest logit is the label's, of logits that are split by class.
template <class Context, class T, Layout L>
std::size_t correct_of_split(Run<Context>& run, View<const T, L> logits,
                             View<const std::int32_t, Invariant> labels) {
  const Interval mine = local_block<L>(logits.global(), logits.place());
  Value<accumulate_t<T>, Partial> largest_here(run.pool, labels.global(), run.place());
  for (std::size_t row = 0; row < logits.rows(); ++row) {
    largest_here.writable()[row] = largest_of(logits.data() + row * mine.size, mine.size);
  }
  const auto largest = combined(run, largest_here, Reduction::max);
  const std::size_t classes = logits.global().back().extent();
  Value<std::int64_t, Partial> class_here(run.pool, labels.global(), run.place());
  for (std::size_t row = 0; row < logits.rows(); ++row) {
    const std::size_t k =
        first_equal(logits.data() + row * mine.size, mine.size, largest.view()[row]);
    class_here.writable()[row] =
        static_cast<std::int64_t>(k < mine.size ? mine.offset + k : classes);
  }
  const auto predicted = combined(run, class_here, Reduction::min);
  std::size_t correct = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (predicted.view()[row] == labels[row]) ++correct;
  }
  return correct;
}

}  // namespace detail

/// The number of rows of the whole batch in which the model, in evaluation, gives its largest logit
/// to the label; of equal ones the first counts, and a NaN is never right. A collective; the same
/// number on every rank.
/// layout   logits Invariant, Sharded<feature>, Sharded<batch> or Sharded<sequence>
/// sends    what forward does, and for Sharded<feature> an all-reduce (max) and one (min) of a
/// number
///          a row, for the others but Invariant an all-reduce of one number
/// throws   as CrossEntropy for labels that do not fit
template <class M>
std::size_t count_correct(M& model, typename M::input_view x,
                          View<const std::int32_t, Invariant> labels) {
  using L = typename M::output_layout;
  static_assert(std::same_as<L, Invariant> || std::same_as<L, Sharded<Axis::feature>> ||
                    std::same_as<L, Sharded<Axis::batch>> ||
                    std::same_as<L, Sharded<Axis::sequence>>,
                "count_correct takes logits that are Invariant, or Sharded by feature (classes), "
                "batch or sequence. Let the model end in one of those: Ends<Offered, Invariant>.");
  const auto logits = model.evaluate(x);
  detail::check_labels(logits.global(), labels);
  auto& run = model.run();
  if constexpr (std::same_as<L, Sharded<Axis::feature>>) {
    return detail::correct_of_split(run, logits, labels);
  } else {
    Value<std::int64_t, Partial> correct(run.pool, Shape{}, run.place());
    std::int64_t& count = correct.writable()[0] = 0;
    const std::size_t classes = logits.columns();
    detail::for_each_label(logits, labels, [&](std::size_t row, std::size_t label) {
      const auto* z = logits.data() + row * classes;
      if (detail::first_equal(z, classes, detail::largest_of(z, classes)) == label) ++count;
    });
    if constexpr (std::same_as<L, Invariant>) return static_cast<std::size_t>(count);
    return static_cast<std::size_t>(detail::combined(run, correct, Reduction::sum).view()[0]);
  }
}

}  // namespace shardwise
