#pragma once
// The loops of a normalisation of rows, on n features x[r * n], ... of each row r.
//
// `Rows` are NormStatistics; weight and bias are read where `HasWeight` and `HasBias` say so.

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// sums[r] = Σ terms(r)(i) over the features i.
template <class Terms, class A>
struct SumRow {
  Terms terms;
  std::size_t n;
  A* sums;

  constexpr void operator()(std::size_t r) const { sums[r] = lane_sum<A>(n, terms(r)); }
};

/// x.
template <class T>
struct NormValue {
  const T* x;
  std::size_t n;

  constexpr auto operator()(std::size_t r) const {
    return [row = x + r * n](std::size_t i) { return static_cast<accumulate_t<T>>(row[i]); };
  }
};

/// (x - mean)².
template <class Rows, class T>
struct NormSquare {
  Rows rows;
  const T* x;
  std::size_t n;

  constexpr auto operator()(std::size_t r) const {
    return [row = x + r * n, mean = rows.mean(r)](std::size_t i) {
      const auto centred = static_cast<accumulate_t<T>>(row[i]) - mean;
      return centred * centred;
    };
  }
};

/// g = dy w.
template <bool HasWeight, class T>
struct NormSlope {
  const T* dy;
  const T* weight;
  std::size_t n;

  constexpr auto operator()(std::size_t r) const {
    return [*this, first = r * n](std::size_t i) {
      const auto d = static_cast<accumulate_t<T>>(dy[first + i]);
      if constexpr (HasWeight) return d * static_cast<accumulate_t<T>>(weight[i]);
      return d;
    };
  }
};

/// g x̂.
template <bool HasWeight, class Rows, class T>
struct NormSlopeAlong {
  Rows rows;
  NormSlope<HasWeight, T> slope;
  const T* x;

  constexpr auto operator()(std::size_t r) const {
    return [g = slope(r), row = rows[r], at = x + r * slope.n](std::size_t i) {
      return g(i) * row.normalised(at[i]);
    };
  }
};

/// y = x̂ w + b.
template <bool HasWeight, bool HasBias, class Rows, class T>
struct NormOutput {
  Rows rows;
  std::size_t n;
  const T* x;
  const T* weight;
  const T* bias;
  T* y;

  constexpr void operator()(std::size_t r) const {
    using A = accumulate_t<T>;
    const auto row = rows[r];
    for (std::size_t i = 0; i < n; ++i) {
      A value = row.normalised(x[r * n + i]);
      if constexpr (HasWeight) value *= static_cast<A>(weight[i]);
      if constexpr (HasBias) value += static_cast<A>(bias[i]);
      y[r * n + i] = static_cast<T>(value);
    }
  }
};

/// dx = scale (g - Σ g / N - x̂ Σ g x̂ / N), the first of the sums if `Centred`.
template <bool Centred, bool HasWeight, class Rows, class T>
struct NormInputGradient {
  using A = accumulate_t<T>;

  Rows rows;
  NormSlope<HasWeight, T> slope;
  A features;      // N, over all ranks
  const A* along;  // Σ g x̂
  const A* level;  // Σ g
  const T* x;
  T* dx;

  constexpr void operator()(std::size_t r) const {
    const std::size_t n = slope.n;
    const auto g = slope(r);
    const auto row = rows[r];
    const A a = along[r] / features;
    const A b = Centred ? level[r] / features : A(0);
    for (std::size_t i = 0; i < n; ++i) {
      const A d = g(i) - b - row.normalised(x[r * n + i]) * a;
      dx[r * n + i] = static_cast<T>(row.scale * d);
    }
  }
};

/// dw (+)= Σ dy x̂ and db (+)= Σ dy over the rows in their order, of `Width` neighbouring features.
template <std::size_t Width, bool HasBias, class Rows, class T>
struct NormGradients {
  Rows rows;
  std::size_t count;  // of rows
  std::size_t n;
  const T* x;
  const T* dy;
  Write write;
  T* dw;
  T* db;

  constexpr void operator()(std::size_t block) const {
    using A = accumulate_t<T>;
    const std::size_t first = block * Width;
    const std::size_t here = std::min(Width, n - first);
    std::array<A, Width> along{};
    std::array<A, Width> level{};
    for (std::size_t r = 0; r < count; ++r) {
      const auto row = rows[r];
      const T* const in = x + r * n + first;
      const T* const from = dy + r * n + first;
      for (std::size_t i = 0; i < here; ++i) {
        const A d = static_cast<A>(from[i]);
        along[i] += d * row.normalised(in[i]);
        if constexpr (HasBias) level[i] += d;
      }
    }
    for (std::size_t i = 0; i < here; ++i) {
      store(dw[first + i], along[i], write);
      if constexpr (HasBias) store(db[first + i], level[i], write);
    }
  }
};

}  // namespace shardwise::detail
