#pragma once
// The loops of a group normalisation, over planes p of the rank's images, or over the elements i of
// a plane. A row r of `Rows`, NormStatistics, is a group of `of_group` neighbouring planes.

#include <cstddef>

#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// The rank's planes: `size` elements each, `of_group` of them a row, `channels` of them an image.
struct GroupedPlanes {
  std::size_t size;
  std::size_t of_group;
  std::size_t channels;
};

/// y = x̂ w + b.
template <bool HasAffine, class Rows, class T>
struct GroupNormOutput {
  GroupedPlanes planes;
  Rows rows;
  const T* weight;
  const T* bias;
  const T* x;
  T* y;

  constexpr auto operator()(std::size_t p) const {
    using A = accumulate_t<T>;
    const auto row = rows[p / planes.of_group];
    A factor = row.scale, shift = 0;
    if constexpr (HasAffine) {
      factor *= static_cast<A>(weight[p % planes.channels]);
      shift = static_cast<A>(bias[p % planes.channels]);
    }
    return [in = x + p * planes.size, to = y + p * planes.size, mean = row.mean, factor,
            shift](std::size_t i) {
      to[i] = static_cast<T>((static_cast<A>(in[i]) - mean) * factor + shift);
    };
  }
};

/// The terms dy x̂ of plane p.
template <class Rows, class T>
struct PlaneAlong {
  GroupedPlanes planes;
  Rows rows;
  const T* x;
  const T* dy;

  constexpr auto operator()(std::size_t p) const {
    return [in = x + p * planes.size, from = dy + p * planes.size,
            row = rows[p / planes.of_group]](std::size_t i) {
      return static_cast<accumulate_t<T>>(from[i]) * row.normalised(in[i]);
    };
  }
};

/// The terms w s of a row, with s the sums of its planes.
template <bool HasAffine, class T>
struct WeightedPlanes {
  using A = accumulate_t<T>;

  GroupedPlanes planes;
  const T* weight;
  const A* sums;

  constexpr auto operator()(std::size_t r) const {
    return [*this, first = r * planes.of_group](std::size_t k) {
      const A sum = sums[first + k];
      if constexpr (HasAffine) return sum * static_cast<A>(weight[(first + k) % planes.channels]);
      return sum;
    };
  }
};

/// dx = scale (dy w - Σ dy w / N - x̂ Σ dy w x̂ / N), with sums over the N elements of a row.
template <bool HasAffine, class Rows, class T>
struct GroupNormInputGradient {
  using A = accumulate_t<T>;

  GroupedPlanes planes;
  Rows rows;
  A count;         // N, over all ranks
  const A* along;  // Σ dy w x̂
  const A* level;  // Σ dy w
  const T* weight;
  const T* x;
  const T* dy;
  T* dx;

  constexpr auto operator()(std::size_t p) const {
    const std::size_t r = p / planes.of_group;
    A factor = 1;
    if constexpr (HasAffine) factor = static_cast<A>(weight[p % planes.channels]);
    return [row = rows[r], in = x + p * planes.size, from = dy + p * planes.size,
            to = dx + p * planes.size, factor, a = along[r] / count,
            b = level[r] / count](std::size_t i) {
      const A d = static_cast<A>(from[i]) * factor - b - row.normalised(in[i]) * a;
      to[i] = static_cast<T>(row.scale * d);
    };
  }
};

}  // namespace shardwise::detail
