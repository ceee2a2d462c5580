#pragma once
// The elements of a rank's part of a tensor, by their numbers in the whole tensor.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "shardwise/core/independent_loop.hpp"
#include "shardwise/core/tensor_memory.hpp"
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

/// The runs of the part that the rank at `place` holds of a tensor of this shape in this layout;
/// global elements count from `first` on.
constexpr GlobalRuns global_runs(const LayoutValue& layout, const Shape& whole, Place place,
                                 std::uint64_t first = 0) {
  if (!layout.cuts()) return {1, whole.elements(), first, 0};
  const std::size_t axis = split_position(layout, whole);
  const std::size_t inner = whole.elements(axis + 1, whole.rank());
  const Interval block = held_interval(layout, whole[axis], place);
  return {whole.elements(0, axis), block.size * inner, first + block.offset * inner,
          whole[axis].extent() * inner};
}

/// Those of a view.
template <class T, Layout L, class E>
constexpr GlobalRuns global_runs(const View<T, L, E>& view, std::uint64_t first = 0) {
  if constexpr (PlainLayout<L>) {
    return global_runs(layout_value<L>, view.global(), view.place(), first);
  } else {
    return {1, view.size(), first, 0};
  }
}

/// The same runs, without gaps so far, if each sample, of `here` elements, is a part of one of
/// `whole` elements and begins with element `offset` of it. A run has several whole samples, or
/// lies within one.
constexpr GlobalRuns in_longer_samples(const GlobalRuns& runs, std::size_t here,
                                       std::uint64_t whole, std::uint64_t offset) {
  if (runs.size() == 0) return {};
  const std::uint64_t first = runs.first / here * whole + runs.first % here + offset;
  if (runs.length < here)
    return {runs.count,
            runs.length,
            first,
            runs.stride,
            runs.stride == 0 ? 1 : static_cast<std::size_t>(here / runs.stride),
            whole - here};
  const std::size_t samples = runs.length / here;  // of each run
  const std::uint64_t left_out = runs.count == 1 ? 0 : runs.stride / here - samples;
  return {runs.count * samples, here, first, whole, samples, left_out * whole};
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
