#pragma once
// Sums in an order that depends on nothing but the number of their terms, and how they are written.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// Σ term(k) over k in [0, n), summed in A. Kept in 16 running sums, which the compiler turns into
/// vectors, added in order at the end.
template <class A, class Term>
A lane_sum(std::size_t n, Term term) {
  constexpr std::size_t lanes = 16;
  std::array<A, lanes> sums{};
  std::size_t k = 0;
  for (; k + lanes <= n; k += lanes) {
    for (std::size_t l = 0; l < lanes; ++l) sums[l] += term(k + l);
  }
  for (std::size_t l = 0; k < n; ++k, ++l) sums[l] += term(k);
  A sum = 0;
  for (const A lane : sums) sum += lane;
  return sum;
}

/// out = sum, or out += sum; rounded once either way.
template <Real T>
void store(T& out, accumulate_t<T> sum, Write write) {
  using A = accumulate_t<T>;
  out = static_cast<T>(write == Write::add ? static_cast<A>(out) + sum : sum);
}

/// out[columns] (+)= Σ_rows values[rows, columns], summed in the order of the rows. `sums` is
/// memory for one row of them.
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
