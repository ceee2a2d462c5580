#pragma once
// Loops over the elements of a matrix, row by row.

#include <cstddef>

#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// f(r)(i) for element r * n + i.
template <class F>
struct InItsRow {
  std::size_t n;
  F f;

  constexpr void operator()(std::size_t element) const { f(element / n)(element % n); }
};

/// Calls f(r)(i) for every element i of n of every row r: with one thread for each element on a
/// device, and by whole rows on the host, since f(r) itself may compute something. Calls no f(r) if
/// rows have no elements: there may be no memory.
template <class B, class F>
void for_each_in_rows(B& backend, std::size_t rows, std::size_t n, const F& f) {
  if constexpr (DeviceBackend<B>) {
    backend.for_each(rows * n, InItsRow<F>{n, f});
  } else {
    for (std::size_t r = 0; n > 0 && r < rows; ++r) backend.for_each(n, f(r));
  }
}

}  // namespace shardwise::detail
