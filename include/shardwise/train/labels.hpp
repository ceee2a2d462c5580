#pragma once
// What a prediction is compared with: targets, and class indices, one for each row of the logits.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise::detail {

/// Labels or targets beside a prediction laid out as L, as a view of constants. They are whole on
/// every rank, or split along with the prediction: each rank then needs those of its part alone.
template <class T, Layout L, class Given>
auto target_along(const Given& given) {
  static_assert(
      requires {
        typename Given::layout;
        typename Given::value_type;
      },
      "Given is no tensor: labels and targets are a View or a Tensor's view(), which "
      "knows its shape. Make one of your memory: View<const T, Invariant>(data, shape, "
      "place_of(ranks)).");
  static_assert(std::same_as<std::remove_const_t<typename Given::value_type>, T>,
                "labels and targets are a View<const T, ...>: labels of std::int32_t, whatever "
                "the model computes in, and targets of the prediction's dtype. Copy them into a "
                "Tensor of T.");
  using Along = typename Given::layout;
  static_assert(std::same_as<Along, Invariant> || (std::same_as<Along, L> && ShardedLayout<L>),
                "labels and targets are Invariant, which is whole on every rank, or Sharded as the "
                "prediction is. Lay them out as one of those.");
  return View<const T, Along>(given);
}

/// The same for labels, which have no classes to be split by.
template <Layout L, class Given>
auto labels_along(const Given& given) {
  using Rows = std::conditional_t<std::same_as<L, Sharded<Axis::feature>>, Invariant, L>;
  return target_along<std::int32_t, Rows>(given);
}

/// Throws argument_error if the target is split but is another rank's part.
template <class T, Layout L, class Label, Layout Along>
void check_place(View<T, L> prediction, View<Label, Along> target) {
  if (std::same_as<Along, Invariant> || target.place() == prediction.place()) return;
  throw argument_error(
      "the labels or targets are the part of rank " + std::to_string(target.place().rank) + " of " +
      std::to_string(target.place().size) + ", but the prediction is that of rank " +
      std::to_string(prediction.place().rank) + " of " + std::to_string(prediction.place().size) +
      ": make both with place_of(ranks) of the model's communicator");
}

/// Throws shape_error unless there is one label for each row of `logits`, and argument_error for a
/// label that is no class. Where labels are whole, every rank throws the same.
template <Layout Along>
void check_labels(const Shape& logits, View<const std::int32_t, Along> labels) {
  if (logits.rank() == 0 || logits.back().axis != Axis::feature) {
    throw shape_error("the logits are a tensor " + to_string(logits) +
                      "; their innermost axis must be feature, which are the classes");
  }
  if (!(labels.global() == logits.without_back())) {
    throw shape_error("the labels are a tensor " + to_string(labels.global()) + ", but logits " +
                      to_string(logits) +
                      " need one label for each row: " + to_string(logits.without_back()));
  }
  const std::size_t classes = logits.back().extent();
  for_each_global_run(labels, [&](std::size_t global, std::size_t local, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) {
      const std::int32_t label = labels[local + i];
      if (label >= 0 && static_cast<std::size_t>(label) < classes) continue;
      throw argument_error("label " + std::to_string(label) + " of row " +
                           std::to_string(global + i) + " is no class: there are " +
                           std::to_string(classes) +
                           " classes, numbered from 0. Look at the labels, or at the size of the "
                           "model's last layer");
    }
  });
}

/// Calls f(local row, label) for every row that the rank holds of logits laid out as L, which does
/// not split the classes.
template <class T, Layout L, Layout Along, class F>
void for_each_label(View<T, L> logits, View<const std::int32_t, Along> labels, F&& f) {
  const View<const std::int32_t, L> rows_here(nullptr, labels.global(), logits.place());
  for_each_global_run(rows_here, [&](std::size_t global, std::size_t local, std::size_t length) {
    const std::size_t first = std::same_as<Along, L> ? local : global;
    for (std::size_t i = 0; i < length; ++i) {
      f(local + i, static_cast<std::size_t>(labels[first + i]));
    }
  });
}

/// The largest of `count` logits: NaN if one of them is, minus infinity if there are none.
template <class T>
constexpr accumulate_t<T> largest_of(const T* logits, std::size_t count) {
  using A = accumulate_t<T>;
  A largest = -std::numeric_limits<A>::infinity();
  for (std::size_t k = 0; k < count; ++k) {
    const A z = static_cast<A>(logits[k]);
    if (z > largest || z != z) largest = z;
  }
  return largest;
}

}  // namespace shardwise::detail
