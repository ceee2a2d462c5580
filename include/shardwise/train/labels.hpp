#pragma once
// Class indices beside logits: one label for each row of the whole batch.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "shardwise/core/error.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise::detail {

/// Throws shape_error unless there is one label for each row of `logits`, and argument_error for a
/// label that is no class. Sees the whole batch, so every rank throws the same.
inline void check_labels(const Shape& logits, View<const std::int32_t, Invariant> labels) {
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
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::int32_t label = labels[row];
    if (label < 0 || static_cast<std::size_t>(label) >= classes) {
      throw argument_error("label " + std::to_string(label) + " of row " + std::to_string(row) +
                           " is no class: there are " + std::to_string(classes) +
                           " classes, numbered from 0. Look at the labels, or at the size of the "
                           "model's last layer");
    }
  }
}

/// Calls f(local row, label) for every row that the rank holds of logits laid out as L, which does
/// not split the classes.
template <class T, Layout L, class F>
void for_each_label(View<T, L> logits, View<const std::int32_t, Invariant> labels, F&& f) {
  const View<const std::int32_t, L> rows_here(nullptr, labels.global(), logits.place());
  for_each_global_run(rows_here, [&](std::size_t global, std::size_t local, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) {
      f(local + i, static_cast<std::size_t>(labels[global + i]));
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
