#pragma once
// What recorded steps do besides those that are called: they note on the device what became of
// them.

#include <cstddef>
#include <cstdint>

#include "shardwise/core/dtype.hpp"
#include "shardwise/train/clip.hpp"

namespace shardwise::detail {

/// What became of recorded steps.
struct RecordedSteps {
  double loss = 0;           ///< the last one's sum of terms
  double norm = 0;           ///< of its gradients, if they are to be clipped
  double factor = 1;         ///< which cuts them down
  std::uint64_t count = 0;   ///< those that have changed parameters
  bool has_stopped = false;  ///< a loss or norm was no finite number, so no step from it on counts
};

/// Takes note of the loss of a step.
struct NoteLoss {
  const double* loss;
  RecordedSteps* steps;

  constexpr void operator()(std::size_t) const {
    if (steps->has_stopped) return;
    steps->loss = *loss;
    steps->has_stopped = !(*loss - *loss == 0);
    if (!steps->has_stopped) ++steps->count;
  }
};

/// Takes note of the norm of a step's gradients, behind its loss.
struct NoteNorm {
  const double* reduced;  ///< as `put_norm` leaves it
  Norm kind;
  double max_norm;
  RecordedSteps* steps;

  constexpr void operator()(std::size_t) const {
    if (steps->has_stopped) return;
    steps->norm = norm_of(*reduced, kind);
    steps->factor = clip_factor(steps->norm, max_norm);
    steps->has_stopped = !(steps->norm - steps->norm == 0);
    if (steps->has_stopped) --steps->count;
  }
};

/// Multiplies gradients by the factor of their step.
template <Real T>
struct CutDown {
  using A = accumulate_t<T>;

  T* gradients;
  const RecordedSteps* steps;

  constexpr void operator()(std::size_t i) const {
    gradients[i] = static_cast<T>(static_cast<A>(gradients[i]) * static_cast<A>(steps->factor));
  }
};

/// A loop that does nothing once steps have stopped.
template <class Loop>
struct UnlessStopped {
  const RecordedSteps* steps;
  Loop loop;

  constexpr void operator()(std::size_t i) const {
    if (!steps->has_stopped) loop(i);
  }
};

}  // namespace shardwise::detail
