#pragma once
// The only function of CBLAS that shardwise uses, for both of its dtypes.

#include <cblas.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::cblas {

/// A row-major matrix, or its transpose.
template <class T>
struct Factor {
  const T* data;
  CBLAS_TRANSPOSE as = CblasNoTrans;
};

inline int checked_extent(std::size_t extent) {
  if (extent > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw backend_error({"CBLAS counts rows and columns in an int, but a matrix has ", extent,
                         " of them; use more ranks or fewer rows at once"});
  }
  return static_cast<int>(extent);
}

/// c[m, n] (+)= a[m, k] b[k, n]; m, n and k are those of the product, after transposition. An empty
/// sum is zero; CBLAS itself rejects the stride 0 of an empty matrix.
/// throws   backend_error for extents that do not fit into an int
template <class T>
void multiply(std::size_t m, std::size_t n, std::size_t k, Factor<T> a, Factor<T> b, Write write,
              T* c) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (write == Write::replace) std::fill(c, c + m * n, T(0));
    return;
  }
  const int rows = checked_extent(m);
  const int columns = checked_extent(n);
  const int length = checked_extent(k);
  const int stride_a = a.as == CblasNoTrans ? length : rows;
  const int stride_b = b.as == CblasNoTrans ? columns : length;
  const T beta = write == Write::add ? T(1) : T(0);
  if constexpr (sizeof(T) == sizeof(double)) {
    cblas_dgemm(CblasRowMajor, a.as, b.as, rows, columns, length, 1.0, a.data, stride_a, b.data,
                stride_b, beta, c, columns);
  } else {
    cblas_sgemm(CblasRowMajor, a.as, b.as, rows, columns, length, 1.0F, a.data, stride_a, b.data,
                stride_b, beta, c, columns);
  }
}

}  // namespace shardwise::detail::cblas
