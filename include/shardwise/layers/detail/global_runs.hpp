#pragma once
// The elements that a rank holds of a tensor, by their numbers in the whole.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise::detail {

/// Runs of local elements that are neighbours in the whole tensor too.
struct GlobalRuns {
  std::size_t count = 0;     ///< of runs
  std::size_t length = 0;    ///< elements of each
  std::uint64_t first = 0;   ///< global element that the first run begins with
  std::uint64_t stride = 0;  ///< from there to the beginning of the next

  /// The global element that run `run` begins with.
  constexpr std::uint64_t begin(std::size_t run) const { return first + run * stride; }

  /// The global element that is local element `i`.
  constexpr std::uint64_t global(std::size_t i) const { return begin(i / length) + i % length; }
};

/// The runs of a tensor; global elements count from `first` on.
template <class T, Layout L, class E>
constexpr GlobalRuns global_runs(const View<T, L, E>& view, std::uint64_t first = 0) {
  if constexpr (SplitLayout<L>) {
    const Shape& whole = view.global();
    const std::size_t axis = split_position<L>(whole);
    const std::size_t inner = whole.elements(axis + 1, whole.rank());
    const Interval block = local_block<L>(whole, view.place());
    return {whole.elements(0, axis), block.size * inner, first + block.offset * inner,
            whole[axis].extent() * inner};
  } else {
    return {1, view.size(), first, 0};
  }
}

/// f for one piece of a run.
template <class F>
struct OnPiece {
  GlobalRuns runs;
  std::size_t pieces;   // of each run
  std::uint64_t fours;  // of elements in a piece
  F f;

  constexpr void operator()(std::size_t i) const {
    const std::size_t run = i / pieces;
    const std::uint64_t begin = runs.begin(run);
    const std::uint64_t first = begin / 4 + i % pieces * fours;
    const std::uint64_t from = std::max(begin, 4 * first);
    const std::uint64_t to = std::min(begin + runs.length, 4 * (first + fours));
    f(from, to, run * runs.length + static_cast<std::size_t>(from - begin));
  }
};

/// Calls f(begin, end, local) for pieces of runs: the global elements [begin, end), of which the
/// first is local element `local`; nothing is to be done if begin is not below end. On a device a
/// piece is what shares a block of random numbers, four elements, and elsewhere a whole run.
template <class B, class F>
void for_each_piece(B& backend, const GlobalRuns& runs, const F& f) {
  const std::size_t fours = (runs.length + 2) / 4 + 1;  // that a run has a part of, at most
  if constexpr (DeviceBackend<B>) {
    backend.for_each(runs.count * fours, OnPiece<F>{runs, fours, 1, f});
  } else {
    backend.for_each(runs.count, OnPiece<F>{runs, 1, fours, f});
  }
}

}  // namespace shardwise::detail
