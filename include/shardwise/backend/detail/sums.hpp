#pragma once
// Sums in an order that depends only on the number of their terms, and how they are written.

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/independent_loop.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// Σ term(k) over k in [0, n), summed in A, in the order of `lane_reduce`.
template <class A, class Term>
constexpr A lane_sum(std::size_t n, Term term) {
  return lane_reduce(n, A(0), term, Plus{});
}

/// Σ a[k] b[k]. All products of `Reference` over the innermost axis are summed here: in one piece,
/// which clang makes faster, since no axis of features has millions of them.
template <Real T>
constexpr accumulate_t<T> dot(const T* a, const T* b, std::size_t n) {
  using A = accumulate_t<T>;
  return reduce_in_lanes<16>(
      0, n, A(0), [=](std::size_t k) { return static_cast<A>(a[k]) * static_cast<A>(b[k]); },
      Plus{});
}

/// sums[k] += factor * row[k].
template <Real T>
constexpr void add_scaled(accumulate_t<T>* sums, accumulate_t<T> factor, const T* row,
                          std::size_t n) {
  using A = accumulate_t<T>;
  for (std::size_t k = 0; k < n; ++k) sums[k] += factor * static_cast<A>(row[k]);
}

/// The number of neighbouring columns of a matrix that a core sums at a time, row by row: as many
/// as it reads contiguously and keeps in registers or cache.
inline constexpr std::size_t columns_at_once = 256;

/// The number of rows whose terms are added one after the other in accumulate_t. Their sums are
/// added in double: a float sum of millions of rows loses the last digits of each further term, at
/// a million terms of 0.1 a hundredth of them.
inline constexpr std::size_t rows_at_once = 1024;

/// Calls f(begin, end) for the rows [0, rows), in order, at most rows_at_once at a time.
template <class F>
constexpr void for_each_piece_of_rows(std::size_t rows, const F& f) {
  for (std::size_t begin = 0; begin < rows; begin += rows_at_once)
    f(begin, std::min(rows, begin + rows_at_once));
}

/// out = sum, or out += sum; rounded once in both cases.
template <Real T>
constexpr void store(T& out, accumulate_t<T> sum, Write write) {
  using A = accumulate_t<T>;
  out = static_cast<T>(write == Write::add ? static_cast<A>(out) + sum : sum);
}

/// Rows of a matrix that begin `apart` elements apart, of type V.
template <class V>
struct SummedRows {
  std::size_t rows;
  std::size_t columns;
  std::size_t apart;
  const V* values;

  /// The terms of column c, one of each row.
  constexpr auto operator()(std::size_t c) const {
    return [step = apart, from = values + c](std::size_t r) {
      return static_cast<accumulate_t<V>>(from[r * step]);
    };
  }
};

/// out[c] (+)= sum.
template <Real T>
struct StoreSum {
  Write write;
  T* out;

  constexpr void operator()(std::size_t c, accumulate_t<T> sum) const { store(out[c], sum, write); }
};

/// out[c] (+)= the sum of column c, in the order of the rows, for a block of neighbouring columns;
/// see rows_at_once.
template <class V, Real T>
struct SumsOfBlock {
  static constexpr bool is_loop = true;

  SummedRows<V> of;
  StoreSum<T> put;

  void operator()(std::size_t block) const {
    using A = accumulate_t<T>;
    const std::size_t first = block * columns_at_once;
    const std::size_t here = std::min(columns_at_once, of.columns - first);
    std::array<double, columns_at_once> sums{};
    for_each_piece_of_rows(of.rows, [&](std::size_t begin, std::size_t end) {
      std::array<A, columns_at_once> some{};
      for (std::size_t r = begin; r < end; ++r) {
        const V* const row = of.values + r * of.apart + first;
        plain_loop(here,
                   [row, to = some.data()](std::size_t c) { to[c] += static_cast<A>(row[c]); });
      }
      for (std::size_t c = 0; c < here; ++c) sums[c] += static_cast<double>(some[c]);
    });
    for (std::size_t c = 0; c < here; ++c) put(first + c, static_cast<A>(sums[c]));
  }
};

/// out[c] (+)= the sum of column c. On the host in the order of the rows.
template <class B, class V, Real T>
void put_column_sums(B& backend, const SummedRows<V>& of, Write write, T* out) {
  const StoreSum<T> put{write, out};
  if constexpr (DeviceBackend<B>) {
    backend.reduce_each(of.columns, of.rows, Adjacent::rows, accumulate_t<T>(0), of, Plus{}, put);
  } else {
    backend.for_each((of.columns + columns_at_once - 1) / columns_at_once,
                     SumsOfBlock<V, T>{of, put});
  }
}

}  // namespace shardwise::detail
