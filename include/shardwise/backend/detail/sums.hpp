#pragma once
// Sums in an order that depends only on the number of their terms, and how they are written.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// Σ term(k) over k in [0, n), summed in A, in the order of `lane_reduce`.
template <class A, class Term>
constexpr A lane_sum(std::size_t n, Term term) {
  return lane_reduce(n, A(0), term, Plus{});
}

/// Σ a[k] b[k]. All products of `Reference` over the innermost axis are summed here.
template <Real T>
constexpr accumulate_t<T> dot(const T* a, const T* b, std::size_t n) {
  using A = accumulate_t<T>;
  return lane_sum<A>(n, [=](std::size_t k) { return static_cast<A>(a[k]) * static_cast<A>(b[k]); });
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

/// out = sum, or out += sum; rounded once in both cases.
template <Real T>
constexpr void store(T& out, accumulate_t<T> sum, Write write) {
  using A = accumulate_t<T>;
  out = static_cast<T>(write == Write::add ? static_cast<A>(out) + sum : sum);
}

/// out[columns] (+)= Σ_rows values[rows, columns], summed in the order of the rows. `sums` is
/// memory for one row.
template <Real T>
void column_sums(std::size_t rows, std::size_t columns, const T* values, Write write,
                 std::vector<accumulate_t<T>>& sums, T* out) {
  using A = accumulate_t<T>;
  std::fill(sums.begin(), sums.end(), A(0));
  for (std::size_t r = 0; r < rows; ++r) {
    const T* row = values + r * columns;
    for (std::size_t c = 0; c < columns; ++c) sums[c] += static_cast<A>(row[c]);
  }
  for (std::size_t c = 0; c < columns; ++c) store(out[c], sums[c], write);
}

}  // namespace shardwise::detail
