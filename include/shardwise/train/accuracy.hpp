#pragma once
// The accuracy of a model: how often its prediction is the label.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/redistribute/number.hpp"
#include "shardwise/redistribute/run.hpp"
#include "shardwise/train/labels.hpp"
#include "shardwise/train/mesh_loss.hpp"

namespace shardwise {

namespace detail {

/// The logit of a row's label, or minus infinity if another rank has it.
template <class T>
struct LogitOfLabel {
  using A = accumulate_t<T>;

  LogitRows<T> rows;
  A* known;

  constexpr void operator()(std::size_t row) const {
    const std::size_t label = rows.label(row);
    known[row] = label < rows.classes ? static_cast<A>(rows.of(row)[label])
                                      : -std::numeric_limits<A>::infinity();
  }
};

/// 1 for each of the rank's logits of a row that is ahead of the label's: a larger one, an equal
/// one with a smaller number, and every NaN. If the label's logit is NaN, all others are ahead of
/// it.
template <class T>
struct AheadOfLabel {
  using A = accumulate_t<T>;

  LogitRows<T> rows;
  const A* of_label;

  constexpr auto operator()(std::size_t row) const {
    return [logits = rows.of(row), first = rows.first,
            label = static_cast<std::size_t>(rows.labels[row]),
            of_row = of_label[row]](std::size_t k) {
      const A z = static_cast<A>(logits[k]);
      const bool is_behind = z < of_row || (z == of_row && first + k >= label);
      return !is_behind && (first + k != label || z != z) ? std::int32_t{1} : std::int32_t{0};
    };
  }
};

/// ahead[row] = the number of the rank's logits that are ahead of the label's.
template <class B, class T>
void put_ahead(B& backend, std::size_t count, const LogitRows<T>& rows,
               const accumulate_t<T>* of_label, std::int32_t* ahead) {
  reduce_each(backend, count, rows.classes, std::int32_t{0}, AheadOfLabel<T>{rows, of_label},
              Plus{}, PutInto<std::int32_t>{ahead});
}

/// 1 for a row with fewer than k logits ahead of the label's, over all ranks.
struct IsAheadOfK {
  const std::int32_t* ahead;
  std::size_t k;

  constexpr std::int64_t operator()(std::size_t row) const {
    return static_cast<std::size_t>(ahead[row]) < k ? 1 : 0;
  }
};

/// The ranks' summands, combined by `reduction` to one tensor.
template <class Context, class T>
Value<T, Invariant> combined(Run<Context>& run, const Value<T, Partial>& in, Reduction reduction) {
  Value<T, Invariant> out(run.pool, in.global(), run.place());
  redistribute(run.backend, run.ranks, run.pool, in.view(), out.writable(), reduction);
  return out;
}

/// The number of the rank's rows with fewer than k logits ahead of the label's, for whole rows.
/// `Along` is the layout of the labels, `labels` their shape.
template <Layout Along, class Context, class T>
std::int64_t top_k_of_whole(Run<Context>& run, const LogitRows<T>& rows, const Shape& labels,
                            std::size_t k) {
  Value<accumulate_t<T>, Along> of_label(run.pool, labels, run.place());
  Value<std::int32_t, Along> ahead(run.pool, labels, run.place());
  const std::size_t count = of_label.view().size();
  run.backend.for_each(count, LogitOfLabel<T>{rows, of_label.writable().data()});
  put_ahead(run.backend, count, rows, of_label.view().data(), ahead.writable().data());
  return reduced(run.backend, run.pool, count, std::int64_t{0}, IsAheadOfK{ahead.view().data(), k},
                 Plus{});
}

/// The same for logits that are split by class.
template <class Context, class T>
std::int64_t top_k_of_split(Run<Context>& run, const LogitRows<T>& rows, const Shape& labels,
                            std::size_t k) {
  const std::size_t count = labels.elements();
  Value<accumulate_t<T>, Partial> known(run.pool, labels, run.place());
  run.backend.for_each(count, LogitOfLabel<T>{rows, known.writable().data()});
  const auto of_label = combined(run, known, Reduction::max);
  Value<std::int32_t, Partial> ahead_here(run.pool, labels, run.place());
  put_ahead(run.backend, count, rows, of_label.view().data(), ahead_here.writable().data());
  const auto ahead = combined(run, ahead_here, Reduction::sum);
  return reduced(run.backend, run.pool, count, std::int64_t{0}, IsAheadOfK{ahead.view().data(), k},
                 Plus{});
}

void check_k(std::size_t k, std::size_t classes);

/// The number of rows whose label has one of the k largest logits, over the ranks that share the
/// layers.
template <Layout L, class Context, class T, class Labels>
std::size_t count_top_k_of(Run<Context>& run, const View<const T, L>& logits,
                           const Labels& given_labels, std::size_t k) {
  const auto labels = target_along<std::int32_t, rows_layout_t<L>>(given_labels);
  require_reach(
      run.backend, labels, [] { return "count_top_k"; }, "labels");
  check_labels(run.backend, run.pool, logits.global(), labels);
  check_k(k, logits.global().back().extent());
  const auto here = part_of_target<rows_layout_t<L>>(run.backend, run.pool, labels, logits.place());
  const LogitRows<T> rows(logits, here.view());
  if constexpr (std::same_as<L, Sharded<Axis::feature>>) {
    return static_cast<std::size_t>(top_k_of_split(run, rows, labels.global(), k));
  } else {
    const auto mine = top_k_of_whole<rows_layout_t<L>>(run, rows, labels.global(), k);
    if constexpr (std::same_as<L, Invariant>) {
      return static_cast<std::size_t>(mine);
    } else {
      return static_cast<std::size_t>(all_reduced(run.backend, run.pool, run.ranks, mine));
    }
  }
}

/// The same for the output of a model for so many samples, over all its ranks.
template <class M, class Labels>
std::size_t count_top_k_of_output(M& model, typename M::output_view logits,
                                  const Labels& given_labels, std::size_t k) {
  using L = typename M::ends::wanted;
  static_assert(std::same_as<L, Invariant> || std::same_as<L, Sharded<Axis::feature>> ||
                    std::same_as<L, Sharded<Axis::batch>> ||
                    std::same_as<L, Sharded<Axis::sequence>>,
                "count_top_k and count_correct take logits that are Invariant, or Sharded by "
                "feature (classes), batch or sequence. Let the model end in one of those: "
                "Ends<Offered, Invariant>.");
  auto& run = model.run();
  if constexpr (MeshCommunicator<typename M::communicator>) {
    if constexpr (requires { given_labels.global(); })
      check_label_shape(logits.global(), given_labels.global());
    return static_cast<std::size_t>(sum_of_slices(run, logits.global(), [&] {
      return with_slice_of_target(run, logits.global(), given_labels, [&](const auto& labels) {
        return static_cast<double>(count_top_k_of<L>(run, slice_of(logits), labels, k));
      });
    }));
  } else {
    return count_top_k_of<L>(run, logits, given_labels, k);
  }
}

}  // namespace detail

/// The number of rows of the whole batch whose label has one of the k largest logits of the model,
/// in evaluation. Of equal logits the first counts as larger; a NaN counts as larger than any
/// number, and a label with a NaN is never counted. `segments` are the sequences of the batch, see
/// Model::forward. A collective; the same number on every rank.
/// layout   logits Invariant, Sharded<feature>, Sharded<batch> or Sharded<sequence>; labels
///          Invariant, or split along with the rows of logits; on a mesh, SamplesOverMesh of one
///          of these, or Invariant labels
/// sends    the collectives of forward, and for logits that are
///            Sharded<feature>     an all-reduce (max) of one number a row, and one (sum) of one
///                                 int32 a row
///            Sharded otherwise    an all-reduce of one int64
///          and on a mesh an all-reduce of four doubles along each axis that cuts samples
/// throws   argument_error for k = 0 or above the number of classes, and for batches of unlike
///          sizes on a mesh; for labels as CrossEntropy
template <class M, class Labels>
std::size_t count_top_k(M& model, typename M::input_view x, const Labels& given_labels,
                        std::size_t k, std::span<const Segment> segments = {}) {
  return detail::count_top_k_of_output(model, model.evaluate(x, {.segments = segments}),
                                       given_labels, k);
}

/// The number of rows whose largest logit is the label's: `count_top_k` with k = 1.
template <class M, class Labels>
std::size_t count_correct(M& model, typename M::input_view x, const Labels& labels,
                          std::span<const Segment> segments = {}) {
  return count_top_k(model, x, labels, 1, segments);
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void check_k(std::size_t k, std::size_t classes) {
  if (k > 0 && k <= classes) return;
  throw argument_error({"count_top_k: k is ", k, ", but there are ", classes,
                        " classes: it must be in [1, classes]"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
