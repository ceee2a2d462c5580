#pragma once
// The products of a linear layer, for cuBLASLt.
//
// Our matrices are row-major and cuBLASLt's are column-major, so it sees each of them transposed:
//
//                      in                                        rows
//                  +--------+                                  +------+
//     x [rows, in] |  0 1 2 | rows   in memory 0 1 2 3 4 5,    | 0  3 |
//                  |  3 4 5 |        which the library reads   | 1  4 | in    = xᵀ
//                  +--------+                                  | 2  5 |
//                                                              +------+
//
// It computes D[m, n] = op(A) op(B), summed over k; T is a transposition by cuBLASLt:
//
// clang-format off
//                                        D               op(A)            op(B)            m    n     k
//     forward          y = x wᵀ          yᵀ [out, rows]  (wᵀ)ᵀ [out, in]  xᵀ [in, rows]    out  rows  in
//     backward_input   dx = dy w         dxᵀ [in, rows]  wᵀ [in, out]     dyᵀ [out, rows]  in   rows  out
//     backward_weight  dw = dyᵀ x        dwᵀ [in, out]   xᵀ [in, rows]    (dyᵀ)ᵀ           in   out   rows
//     bias gradient    db = Σ_rows dy    db [out, 1]     dyᵀ [out, rows]  1 [rows, 1]      out  1     rows
// clang-format on
//
// A bias has one element for each row of D, so `forward` adds it. `backward_weight` sums the
// gradient of a bias over its k, once for each of its n columns (BGRADB).

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

constexpr cudaDataType_t type_of(Dtype dtype) {
  constexpr cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_R_16BF, CUDA_R_16F,
                                      CUDA_R_32I, CUDA_R_64I, CUDA_R_8U};
  return types[static_cast<std::size_t>(dtype)];
}

/// D = op(A) op(B), or D += op(A) op(B). No extent is zero.
struct Product {
  Dtype dtype = Dtype::float32;
  cublasOperation_t op_a = CUBLAS_OP_N;
  cublasOperation_t op_b = CUBLAS_OP_N;
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  Write write = Write::replace;

  bool operator==(const Product&) const = default;
};

constexpr Product forward_product(Dtype dtype, std::size_t rows, std::size_t in, std::size_t out,
                                  Write write) {
  return {dtype, CUBLAS_OP_T, CUBLAS_OP_N, out, rows, in, write};
}
constexpr Product backward_input_product(Dtype dtype, std::size_t rows, std::size_t in,
                                         std::size_t out) {
  return {dtype, CUBLAS_OP_N, CUBLAS_OP_N, in, rows, out, Write::replace};
}
constexpr Product backward_weight_product(Dtype dtype, std::size_t rows, std::size_t in,
                                          std::size_t out, Write write) {
  return {dtype, CUBLAS_OP_N, CUBLAS_OP_T, in, out, rows, write};
}
constexpr Product column_sums_product(Dtype dtype, std::size_t rows, std::size_t columns,
                                      Write write) {
  return {dtype, CUBLAS_OP_N, CUBLAS_OP_N, columns, 1, rows, write};
}

/// The epilogue for `activation`, or 0 if cuBLASLt has none. Its GELU is the form with tanh.
constexpr std::uint32_t epilogue_of(Activation activation) {
  if (activation == Activation::relu) return CUBLASLT_EPILOGUE_RELU;
  if (activation == Activation::gelu_tanh) return CUBLASLT_EPILOGUE_GELU;
  return 0;
}

/// The matrices of a product on the device, in column-major order. D is not A or B.
struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  /// Of the epilogue, and aligned for it: the bias, or its gradient for BGRADB.
  const void* vector = nullptr;
};

/// The alignment of an address in bytes, at most `most`; 16 is the widest access of a thread.
inline std::uint32_t alignment_of(const void* address, std::uint32_t most = 16) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | most;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// Whether an epilogue may get this vector; null is allowed. No preference tells the library the
/// alignment of the vector, so it may read 16 bytes at once.
inline bool fits_epilogues(const void* vector) { return alignment_of(vector) == 16; }

/// The alignments that an algorithm is chosen for, so plans for different alignments differ. The
/// library is told those of A, B and D, and reads those of an epilogue's pointers itself; memory of
/// a device is aligned to 256 bytes.
struct Alignments {
  std::uint32_t a = 16;
  std::uint32_t b = 16;
  std::uint32_t d = 16;
  std::uint32_t vector = 256;

  bool operator==(const Alignments&) const = default;
};

inline Alignments alignments_of(const Operands& operands) {
  return {alignment_of(operands.a), alignment_of(operands.b), alignment_of(operands.d),
          alignment_of(operands.vector, 256)};
}

}  // namespace shardwise::detail::cuda
