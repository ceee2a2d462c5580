#pragma once
// The results of recorded steps, which stay on the device until the host reads them.

#include <cstddef>
#include <cstdint>

#include "shardwise/core/dtype.hpp"
#include "shardwise/train/clip.hpp"
#include "shardwise/train/recorded_loss.hpp"

namespace shardwise::detail {

/// The results of recorded steps.
struct RecordedResults {
  double loss = 0;           ///< of the last step
  double norm = 0;           ///< the norm of its gradients, if they are clipped
  double factor = 1;         ///< the factor that clips them
  std::uint64_t count = 0;   ///< steps that have changed parameters
  bool has_stopped = false;  ///< a loss or norm was not finite: this and later steps do not count
  RecordedLoss computed{};   ///< the loss of a step under way
};

/// Stores the loss of a step.
struct NoteLoss {
  const double* loss;
  RecordedResults* steps;

  constexpr void operator()(std::size_t) const {
    if (steps->has_stopped) return;
    steps->loss = *loss;
    steps->has_stopped = !(*loss - *loss == 0);
    if (!steps->has_stopped) ++steps->count;
  }
};

/// Stores the norm of a step's gradients, after its loss.
struct NoteNorm {
  const double* reduced;  ///< as written by `put_norm`
  Norm kind;
  double max_norm;
  RecordedResults* steps;

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
  const RecordedResults* steps;

  constexpr void operator()(std::size_t i) const {
    gradients[i] = static_cast<T>(static_cast<A>(gradients[i]) * static_cast<A>(steps->factor));
  }
};

/// A loop that does nothing once steps have stopped.
template <class Loop>
struct UnlessStopped {
  const RecordedResults* steps;
  Loop loop;

  constexpr void operator()(std::size_t i) const {
    if (!steps->has_stopped) loop(i);
  }
};

}  // namespace shardwise::detail
