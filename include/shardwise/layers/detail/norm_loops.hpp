#pragma once
// The loops of a normalisation of rows, on the n features x[r * n], ... of each row r.
//
// `Rows` are NormStatistics; weight and bias are read only with `HasWeight` and `HasBias`.

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/independent_loop.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

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

  constexpr auto operator()(std::size_t r) const {
    return [*this, row = rows[r], first = r * n](std::size_t i) {
      using A = accumulate_t<T>;
      A value = row.normalised(x[first + i]);
      if constexpr (HasWeight) value *= static_cast<A>(weight[i]);
      if constexpr (HasBias) value += static_cast<A>(bias[i]);
      y[first + i] = static_cast<T>(value);
    };
  }
};

/// dx = scale (g - Σ g / N - x̂ Σ g x̂ / N), without Σ g unless `Centred`.
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

  constexpr auto operator()(std::size_t r) const {
    const A a = along[r] / features;
    const A b = Centred ? level[r] / features : A(0);
    return [g = slope(r), row = rows[r], in = x + r * slope.n, to = dx + r * slope.n, a,
            b](std::size_t i) {
      const A d = g(i) - b - row.normalised(in[i]) * a;
      to[i] = static_cast<T>(row.scale * d);
    };
  }
};

/// The gradients of one feature's weight and bias, or the terms of one row.
template <class A>
struct NormGradient {
  A along;  ///< Σ dy x̂
  A level;  ///< Σ dy

  friend constexpr NormGradient operator+(const NormGradient& a, const NormGradient& b) {
    return {a.along + b.along, a.level + b.level};
  }
};

/// The terms of the rows r in the gradients of feature i.
template <class Rows, class T>
struct NormGradientTerms {
  Rows rows;
  std::size_t n;
  const T* x;
  const T* dy;

  constexpr auto operator()(std::size_t i) const {
    return [all = rows, width = n, in = x + i, from = dy + i](std::size_t r) {
      using A = accumulate_t<T>;
      const A d = static_cast<A>(from[r * width]);
      return NormGradient<A>{d * all[r].normalised(in[r * width]), d};
    };
  }
};

/// dw[i] (+)= sums.along and db[i] (+)= sums.level.
template <bool HasBias, class T>
struct PutNormGradient {
  Write write;
  T* dw;
  T* db;

  constexpr void operator()(std::size_t i, const NormGradient<accumulate_t<T>>& sums) const {
    store(dw[i], sums.along, write);
    if constexpr (HasBias) store(db[i], sums.level, write);
  }
};

/// Adds the terms of `count` rows in order, for a block of neighbouring features, and stores the
/// sums; see rows_at_once.
template <bool HasBias, class Rows, class T>
struct NormGradientsOfBlock {
  NormGradientTerms<Rows, T> terms;
  std::size_t count;
  PutNormGradient<HasBias, T> put;

  void operator()(std::size_t block) const {
    using A = accumulate_t<T>;
    const std::size_t n = terms.n;
    const std::size_t first = block * columns_at_once;
    const std::size_t here = std::min(columns_at_once, n - first);
    std::array<double, columns_at_once> along{};
    std::array<double, columns_at_once> level{};
    for_each_piece_of_rows(count, [&](std::size_t begin, std::size_t end) {
      std::array<A, columns_at_once> some{};
      std::array<A, columns_at_once> some_level{};
      A* const to = some.data();
      A* const to_level = some_level.data();
      for (std::size_t r = begin; r < end; ++r) {
        const auto row = terms.rows[r];
        const T* const in = terms.x + r * n + first;
        const T* const from = terms.dy + r * n + first;
        plain_loop(here, [=](std::size_t i) {
          const A d = static_cast<A>(from[i]);
          to[i] += d * row.normalised(in[i]);
          if constexpr (HasBias) to_level[i] += d;
        });
      }
      for (std::size_t i = 0; i < here; ++i) {
        along[i] += static_cast<double>(some[i]);
        level[i] += static_cast<double>(some_level[i]);
      }
    });
    for (std::size_t i = 0; i < here; ++i)
      put(first + i, {static_cast<A>(along[i]), static_cast<A>(level[i])});
  }
};

/// dw (+)= Σ dy x̂ and db (+)= Σ dy over `count` rows.
template <bool HasBias, class B, class Rows, class T>
void put_norm_gradients(B& backend, std::size_t count, const NormGradientTerms<Rows, T>& terms,
                        const PutNormGradient<HasBias, T>& put) {
  if constexpr (DeviceBackend<B>) {
    backend.reduce_each(terms.n, count, Adjacent::rows, NormGradient<accumulate_t<T>>{}, terms,
                        Plus{}, put);
  } else {
    backend.for_each((terms.n + columns_at_once - 1) / columns_at_once,
                     NormGradientsOfBlock<HasBias, Rows, T>{terms, count, put});
  }
}

}  // namespace shardwise::detail
