#pragma once
// The products of a linear layer by gemm, with plain loops for biases, ReLU and the sums that are
// gradients of biases.

#include <cblas.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "kernels/linear_product.hpp"

namespace by_hand {

/// x [rows, in], w [out, in] and y [rows, out], row-major: y = x wᵀ + b (ReLU); dx = dy w; or
/// dw = dyᵀ x and db, the column sums of dy. Backward has gradients in the places of what they are
/// of, where the layer reads or writes them.
template <class T>
struct CblasLayer {
  std::size_t rows, in, out;
  T *x, *w, *b, *y;

  void operator()(bench::LinearProduct product, bool relu = false) const {
    switch (product) {
      case bench::LinearProduct::forward:
        gemm(CblasNoTrans, CblasTrans, rows, out, in, x, in, w, in, y);
        for (std::size_t i = 0; i < rows * out; i += out)
          for (std::size_t o = 0; o < out; ++o)
            y[i + o] = relu ? std::max(T(0), y[i + o] + b[o]) : y[i + o] + b[o];
        return;
      case bench::LinearProduct::backward_input:
        return gemm(CblasNoTrans, CblasNoTrans, rows, in, out, y, out, w, in, x);
      case bench::LinearProduct::backward_weight:
        gemm(CblasTrans, CblasNoTrans, out, in, rows, y, out, x, in, w);
        std::fill_n(b, out, T(0));
        for (std::size_t i = 0; i < rows * out; i += out)
          for (std::size_t o = 0; o < out; ++o) b[o] += y[i + o];
    }
  }

 private:
  /// to[m, n] = op(p) op(q), with as many numbers in a row of p and q as they lie.
  static void gemm(CBLAS_TRANSPOSE op_p, CBLAS_TRANSPOSE op_q, std::size_t m, std::size_t n,
                   std::size_t k, const T* p, std::size_t row_of_p, const T* q,
                   std::size_t row_of_q, T* to) {
    const auto call = [&](auto function) {
      const auto i = [](std::size_t number) { return static_cast<int>(number); };
      function(CblasRowMajor, op_p, op_q, i(m), i(n), i(k), 1, p, i(row_of_p), q, i(row_of_q), 0,
               to, i(n));
    };
    if constexpr (std::is_same_v<T, float>)
      call(cblas_sgemm);
    else
      call(cblas_dgemm);
  }
};

}  // namespace by_hand
