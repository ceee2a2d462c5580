#pragma once
// The loops of a batch normalisation, over channels c or over the elements i of a channel.

#include <cmath>
#include <cstddef>

#include "shardwise/core/dtype.hpp"
#include "shardwise/layers/detail/channels.hpp"

namespace shardwise::detail {

/// The statistics of every channel, in the model's memory.
template <class A>
struct ChannelStatistics {
  A* running_mean = nullptr;
  A* running_var = nullptr;
  A* mean = nullptr;   ///< of the last forward, and
  A* scale = nullptr;  ///< 1 / sqrt(variance + epsilon)
};

template <class V>
constexpr V scale_of(V variance, V epsilon) {
  return 1 / std::sqrt(variance + epsilon);
}

/// Computes mean and scale of a batch from Σ x and Σ x² of its channels, and updates the running
/// statistics.
template <class A>
struct BatchStatistics {
  const double* totals;
  const double* squares;
  double count;  // values of a channel
  double epsilon;
  double momentum;
  bool moves_running;
  ChannelStatistics<A> kept;

  constexpr void operator()(std::size_t c) const {
    const double mean = totals[c] / count;
    const double spread = squares[c] / count - mean * mean;
    const double variance = spread < 0 ? 0 : spread;  // NaN stays NaN
    kept.mean[c] = static_cast<A>(mean);
    kept.scale[c] = static_cast<A>(scale_of(variance, epsilon));
    if (moves_running && std::isfinite(variance)) {
      move(kept.running_mean[c], mean);
      move(kept.running_var[c], variance * (count / (count - 1)));
    }
  }

 private:
  constexpr void move(A& running, double now) const {
    running = static_cast<A>((1 - momentum) * static_cast<double>(running) + momentum * now);
  }
};

/// Mean and scale, computed from the running statistics.
template <class A>
struct RunningStatistics {
  double epsilon;
  ChannelStatistics<A> kept;

  constexpr void operator()(std::size_t c) const {
    kept.mean[c] = kept.running_mean[c];
    kept.scale[c] = static_cast<A>(scale_of(static_cast<double>(kept.running_var[c]), epsilon));
  }
};

/// x².
template <class T>
struct ChannelSquare {
  const T* x;

  constexpr auto operator()(std::size_t) const {
    return [in = x](std::size_t i) { return number(in[i]) * number(in[i]); };
  }
};

/// dy x̂.
template <class T>
struct ChannelAlong {
  using A = accumulate_t<T>;

  const A* mean;
  const A* scale;
  const T* x;
  const T* dy;

  constexpr auto operator()(std::size_t c) const {
    return [in = x, from = dy, m = mean[c], s = scale[c]](std::size_t i) {
      const A normalised = (static_cast<A>(in[i]) - m) * s;
      return number(from[i]) * static_cast<double>(normalised);
    };
  }
};

/// y = (x - mean) scale w + b.
template <bool HasWeight, bool HasBias, class T>
struct BatchNormOutput {
  using A = accumulate_t<T>;

  const A* mean;
  const A* scale;
  const T* weight;
  const T* bias;
  const T* x;
  T* y;

  constexpr auto operator()(std::size_t c) const {
    A factor = scale[c];
    if constexpr (HasWeight) factor *= static_cast<A>(weight[c]);
    A shift = 0;
    if constexpr (HasBias) shift = static_cast<A>(bias[c]);
    return [in = x, out = y, m = mean[c], factor, shift](std::size_t i) {
      out[i] = static_cast<T>((static_cast<A>(in[i]) - m) * factor + shift);
    };
  }
};

/// dx = w scale (dy - Σ dy / N - x̂ Σ dy x̂ / N).
template <bool HasWeight, class T>
struct BatchNormInputGradient {
  using A = accumulate_t<T>;

  const A* mean;
  const A* scale;
  const double* levels;  // Σ dy
  const double* alongs;  // Σ dy x̂
  double count;          // N
  const T* weight;
  const T* x;
  const T* dy;
  T* dx;

  constexpr auto operator()(std::size_t c) const {
    const A level = static_cast<A>(levels[c] / count);
    const A along = static_cast<A>(alongs[c] / count);
    A factor = scale[c];
    if constexpr (HasWeight) factor *= static_cast<A>(weight[c]);
    return [in = x, from = dy, to = dx, m = mean[c], s = scale[c], level, along,
            factor](std::size_t i) {
      const A normalised = (static_cast<A>(in[i]) - m) * s;
      to[i] = static_cast<T>(factor * (static_cast<A>(from[i]) - level - normalised * along));
    };
  }
};

}  // namespace shardwise::detail
