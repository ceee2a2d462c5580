#pragma once
// The elements of a rank's part of a tensor, by their numbers in the whole tensor.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "shardwise/core/independent_loop.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/held_part.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise::detail {

/// Runs of local elements that are contiguous in the whole tensor too.
struct GlobalRuns {
  std::size_t count = 0;     ///< of runs
  std::size_t length = 0;    ///< elements of each
  std::uint64_t first = 0;   ///< the first global element of the first run
  std::uint64_t stride = 0;  ///< from the begin of a run to that of the next
  std::size_t between = 1;   ///< runs from one gap to the next
  std::uint64_t gap = 0;     ///< elements that follow beyond the stride

  /// Elements of all runs.
  constexpr std::size_t size() const { return count * length; }
  /// The first global element of run `run`.
  constexpr std::uint64_t begin(std::size_t run) const {
    return first + run * stride + (gap == 0 ? 0 : run / between * gap);
  }

  /// The global element of local element `i`.
  constexpr std::uint64_t global(std::size_t i) const { return begin(i / length) + i % length; }
};

/// The axis nearest before `end` of which a part is not the whole; `end` if there is none.
constexpr std::size_t cut_before(const HeldPart& part, std::size_t end) {
  for (std::size_t axis = end; axis-- > 0;)
    if (part.local[axis].units != part.whole[axis].units) return axis;
  return end;
}

/// The runs of a part that is the whole along all axes but the outermost one and two others. Those
/// of a batch count the elements of the samples before it, too.
constexpr GlobalRuns global_runs(const HeldPart& part) {
  const std::size_t rank = part.whole.rank(), inner = cut_before(part, rank);
  if (part.local.elements() == 0) return {};
  std::uint64_t first = 0, stride = 1;
  for (std::size_t axis = rank; axis-- > 0;) {
    first += part.begin[axis] * stride;
    if (part.whole[axis].axis == Axis::batch) first += part.samples_before * stride;
    stride *= part.whole[axis].extent();
  }
  if (inner == rank) return {1, part.local.elements(), first, 0};
  GlobalRuns runs{part.local.elements(0, inner), part.local.elements(inner, rank), first,
                  part.whole.elements(inner, rank)};
  if (const std::size_t outer = cut_before(part, inner); outer != inner) {
    runs.between = part.local.elements(outer, inner);
    runs.gap = (part.whole.elements(outer, inner) - runs.between) * runs.stride;
  }
  return runs;
}

/// Those of the part that the rank at `place` holds of a tensor of this shape in this layout.
constexpr GlobalRuns global_runs(const LayoutValue& layout, const Shape& whole, Place place) {
  return global_runs({whole, local_shape(layout, whole, place), local_begin(layout, whole, place)});
}

/// Those of a view.
template <class T, Layout L, class E>
constexpr GlobalRuns global_runs(const View<T, L, E>& view) {
  return global_runs(held_part(view));
}

/// f for one piece of a run.
template <class F>
struct OnPiece {
  static constexpr bool is_loop = detail::is_loop<F>;
  static constexpr bool is_scalar = !is_loop;

  GlobalRuns runs;
  std::size_t pieces;   // of each run
  std::uint64_t fours;  // blocks of four elements in a piece
  F f;

  constexpr void operator()(std::size_t i) const {
    const std::size_t run = i / pieces;
    const std::uint64_t begin = runs.begin(run);
    const std::uint64_t first = begin / 4 + i % pieces * fours;
    const std::uint64_t from = std::max(begin, 4 * first);
    const std::uint64_t to = std::min(begin + runs.length, 4 * (first + fours));
    if (from < to) f(from, to, run * runs.length + static_cast<std::size_t>(from - begin));
  }
};

/// Calls f(begin, end, local) for pieces of runs: the global elements [begin, end), the first of
/// which is local element `local`. On a device a piece is one block of four random numbers, on the
/// host a whole run.
template <class B, class F>
void for_each_piece(B& backend, const GlobalRuns& runs, const F& f) {
  const std::size_t fours = (runs.length + 2) / 4 + 1;  // the most blocks that a run touches
  if constexpr (DeviceBackend<B>) {
    backend.for_each(runs.count * fours, OnPiece<F>{runs, fours, 1, f});
  } else {
    backend.for_each(runs.count, OnPiece<F>{runs, 1, fours, f});
  }
}

}  // namespace shardwise::detail
