#pragma once
// Loops over the elements of a matrix, row by row.

#include <cstddef>

#include "shardwise/core/independent_loop.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// f(r)(i) for element r * n + i.
template <class F>
struct InItsRow {
  std::size_t n;
  F f;

  constexpr void operator()(std::size_t element) const { f(element / n)(element % n); }
};

/// f(r)(i) for every element i of row r.
template <class F>
struct OverRow {
  static constexpr bool is_loop = true;
  std::size_t n;
  F f;

  void operator()(std::size_t row) const { plain_loop(n, f(row)); }
};

/// Calls f(r)(i) for every element i of n of every row r: with one thread for each element on a
/// device, and by whole rows on the host, since f(r) itself may compute something. Calls no f(r) if
/// rows have no elements: there may be no memory.
template <class B, class F>
void for_each_in_rows(B& backend, std::size_t rows, std::size_t n, const F& f) {
  if constexpr (DeviceBackend<B>) {
    backend.for_each(rows * n, InItsRow<F>{n, f});
  } else if (n > 0) {
    backend.for_each(rows, OverRow<F>{n, f});
  }
}

}  // namespace shardwise::detail
