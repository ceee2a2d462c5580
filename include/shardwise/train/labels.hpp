#pragma once
// The targets of a prediction: values, or class indices, one for each row of the logits.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/local_moves.hpp"
#include "shardwise/train/class_weights.hpp"

namespace shardwise {

namespace detail {

/// Labels or targets for a prediction in the layout L, as a view of constants. They are whole on
/// every rank, or split like the prediction: then each rank needs only its part.
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

/// The layout of the labels of logits in the layout L: a split by class does not split rows.
template <Layout L>
using rows_layout_t = std::conditional_t<std::same_as<L, Sharded<Axis::feature>>, Invariant, L>;

/// Throws argument_error for a split target that is another rank's part.
void require_own_target(Place target, Place prediction);

/// No label is ignored.
inline constexpr std::int64_t none_ignored = std::numeric_limits<std::int64_t>::min();

/// Whether the label of a row is neither one of `classes` classes nor ignored.
struct IsNoClass {
  const std::int32_t* labels;
  std::size_t classes;
  std::int64_t ignored = none_ignored;

  constexpr std::uint8_t operator()(std::size_t row) const {
    if (labels[row] == ignored) return 0;
    return static_cast<std::size_t>(labels[row]) < classes ? 0 : 1;  // a negative one becomes large
  }
};

/// Throws argument_error that names the first label that is not a class; there must be one.
/// labels.data() is memory of the host.
template <Layout Along>
[[gnu::cold]] void refuse_labels(std::size_t classes, View<const std::int32_t, Along> labels,
                                 std::int64_t ignored) {
  const IsNoClass is_no_class{labels.data(), classes, ignored};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (is_no_class(i) == 0) continue;
    std::string text =
        sentence({"label ", labels[i], " of row ", number_in_whole(labels, i),
                  " is no class: there are ", classes,
                  " classes, numbered from 0. Look at the labels, or at the size of the model's "
                  "last layer"});
    if (labels[i] < 0 && ignored == none_ignored)
      append(text, {". Rows with this label are left out by MaskedCrossEntropy or "
                    "NegativeLogLikelihood with .ignored = ",
                    labels[i]});
    throw argument_error(text);
  }
}

/// Throws shape_error unless there is one label for each row of `logits`.
void check_label_shape(const Shape& logits, const Shape& labels);

/// The same, and argument_error for a label that is neither a class nor ignored. If labels are
/// whole, every rank throws the same error; on a mesh, every rank is told of the first slice with
/// such a label.
template <class B, Layout Along>
void check_labels(B& backend, Pool& pool, const Shape& logits,
                  View<const std::int32_t, Along> labels, std::int64_t ignored = none_ignored) {
  check_label_shape(logits, labels.global());
  const std::size_t classes = logits.back().extent();
  const IsNoClass is_no_class{labels.data(), classes, ignored};
  if (reduced(backend, pool, labels.size(), std::uint8_t{0}, is_no_class, Largest{}) == 0) return;
  const Buffer memory = pool.take_on_host(labels.size() * sizeof(std::int32_t));
  auto* const here = static_cast<std::int32_t*>(memory.data());
  to_host(backend, labels.data(), labels.size(), here);
  refuse_labels(classes, labels.in_memory(static_cast<const std::int32_t*>(here)), ignored);
}

/// The rows of logits, with the rank's classes of each, and their labels, in the backend's memory.
template <class T>
struct LogitRows {
  const T* logits;             ///< [rows, classes] of the rank
  const std::int32_t* labels;  ///< [rows]
  std::size_t classes;         ///< number of the rank's classes
  std::size_t first;           ///< number of the first of these classes
  std::int64_t ignored;        ///< the label of rows that do not count
  WeightsThere weights;        ///< of all classes

  template <Layout L, Layout Along>
  constexpr LogitRows(View<const T, L> all, View<const std::int32_t, Along> of_rows,
                      std::int64_t ignored_label = none_ignored,
                      const WeightsThere& of_classes = {})
      : logits(all.data()),
        labels(of_rows.data()),
        classes(all.columns()),
        first(0),
        ignored(ignored_label),
        weights(of_classes) {
    if constexpr (std::same_as<L, Sharded<Axis::feature>>) {
      first = local_block<L>(all.global(), all.place()).offset;
    }
  }

  /// Whether a row counts.
  constexpr bool counts(std::size_t row) const { return labels[row] != ignored; }
  /// The logits of a row.
  constexpr const T* of(std::size_t row) const { return logits + row * classes; }
  /// The index of its label among these logits; not below `classes` if another rank has it.
  constexpr std::size_t label(std::size_t row) const {
    return static_cast<std::size_t>(labels[row]) - first;
  }
};

/// The largest of `count` logits: NaN if one of them is, minus infinity if there are none.
template <class T>
constexpr accumulate_t<T> largest_of(const T* logits, std::size_t count) {
  using A = accumulate_t<T>;
  return lane_reduce<32>(
      count, -std::numeric_limits<A>::infinity(),
      [logits](std::size_t k) { return static_cast<A>(logits[k]); }, Largest{});
}

}  // namespace detail

/// The part of `target` that belongs to this rank's part of a prediction in the layout L, as
/// Value<T, L>: for a loss of your own, in its operator().
///
///     const auto mine = part_of_target<L>(frame.backend(), frame.pool(), target,
///                                         prediction.place());
///     mine.view()[i]  // belongs to prediction[i], if both have the same shape
///
/// `target` is a View or a Tensor in the backend's memory, Invariant or in the layout L, and must
/// outlive the result, which reads its memory where the part is in one piece there. Along the axis
/// of L it is as long as the prediction. Sends nothing.
/// throws   argument_error for a target in L that is another rank's part; memory_error
template <Layout L, class B, class Target>
auto part_of_target([[maybe_unused]] B& backend, [[maybe_unused]] Pool& pool, const Target& target,
                    Place place) {
  using T = std::remove_const_t<typename Target::value_type>;
  const auto given = detail::target_along<T, L>(target);
  if constexpr (std::same_as<typename decltype(given)::layout, L>) {
    if constexpr (ShardedLayout<L>) detail::require_own_target(given.place(), place);
    return Value<T, L>(given);
  } else {
    const Shape& whole = given.global();
    const std::size_t axis = detail::split_position<L>(whole);
    if (whole.elements(0, axis) == 1) {  // the part is contiguous in the whole
      const std::size_t first =
          local_block<L>(whole, place).offset * whole.elements(axis + 1, whole.rank());
      return Value<T, L>(View<const T, L>(given.data() + first, whole, place));
    }
    Value<T, L> part(pool, whole, place);
    detail::slice(backend, given, part.writable());
    return part;
  }
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void require_own_target(Place target, Place prediction) {
  if (target == prediction) return;
  throw argument_error({"the labels or targets are the part of rank ", target.rank, " of ",
                        target.size, ", but the prediction is that of rank ", prediction.rank,
                        " of ", prediction.size,
                        ": make both with place_of(ranks) of the model's communicator"});
}

SHARDWISE_INLINE void check_label_shape(const Shape& logits, const Shape& labels) {
  if (logits.rank() == 0 || logits.back().axis != Axis::feature) {
    throw shape_error({"the logits are a tensor ", logits,
                       "; their innermost axis must be feature, which are the classes"});
  }
  if (!(labels == logits.without_back())) {
    throw shape_error({"the labels are a tensor ", labels, ", but logits ", logits,
                       " need one label for each row: ", logits.without_back()});
  }
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
