#pragma once
// One product with its epilogue, described to cuBLASLt, and the algorithms that it proposes.

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "shardwise/backend/cuda/cublaslt_handle.hpp"
#include "shardwise/backend/cuda/cublaslt_product.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

/// 1 or 0, in the type of the scale factors for products of `dtype`.
inline const void* scalar(Dtype dtype, bool one) {
  static constexpr float floats[] = {0, 1};
  static constexpr double doubles[] = {0, 1};
  const int which = one ? 1 : 0;
  if (dtype == Dtype::float64) return &doubles[which];
  return &floats[which];
}

/// The type in which products of `dtype` are multiplied and summed.
inline cublasComputeType_t compute_type(Dtype dtype, bool tf32) {
  if (dtype == Dtype::float64) return CUBLAS_COMPUTE_64F;
  return dtype == Dtype::float32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// Algorithms for a product. (Not a vector: nvcc 13.0 crashes for a vector of unnamed structs.)
struct MatmulProposals {
  static constexpr int most = 8;

  std::array<cublasLtMatmulHeuristicResult_t, most> all{};
  std::size_t count = 0;
};

/// D = epilogue(op(A) op(B)).
class Matmul {
 public:
  /// `epilogue` is bits of cublasLtEpilogue_t, 0 for none.
  Matmul(const Product& product, std::uint32_t epilogue, bool tf32)
      : product_(product),
        epilogue_(epilogue),
        descriptor_(compute_type(product.dtype, tf32),
                    product.dtype == Dtype::float64 ? CUDA_R_64F : CUDA_R_32F),
        a_(stored(product.op_a, product.m, product.k)),
        b_(stored(product.op_b, product.k, product.n)),
        d_(type_of(product.dtype), product.m, product.n) {
    descriptor_.set(CUBLASLT_MATMUL_DESC_TRANSA, product.op_a);
    descriptor_.set(CUBLASLT_MATMUL_DESC_TRANSB, product.op_b);
    if (epilogue != 0) descriptor_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  }

  const Product& product() const { return product_; }
  std::uint32_t epilogue() const { return epilogue_; }

  /// At most `at_most` algorithms for matrices that are aligned as `operands`, the best first; none
  /// if the library has none. Partial sums have the type in which products are summed.
  MatmulProposals proposals(Session& session, const Operands& operands, int at_most) {
    const Alignments alignments = alignments_of(operands);
    MatmulPreference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, session.options().workspace_bytes);
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.a);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.b);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.d);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.d);
    set_pointers(operands);  // the library rejects an epilogue without pointers

    MatmulProposals result;
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        session.cublaslt(), descriptor_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
        preference.get(), at_most, result.all.data(), &count);
    // If the library has no such epilogue for a dtype, it may report an invalid value.
    const bool has_none = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                          (status == CUBLAS_STATUS_INVALID_VALUE && epilogue_ != 0);
    if (has_none) return {};
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    const auto end =
        std::remove_if(result.all.begin(), result.all.begin() + count,
                       [](const auto& one) { return one.state != CUBLAS_STATUS_SUCCESS; });
    result.count = static_cast<std::size_t>(end - result.all.begin());
    return result;
  }

  /// Enqueues the product on the session's stream; returns the library's status.
  cublasStatus_t launch(Session& session, const Operands& operands,
                        const cublasLtMatmulHeuristicResult_t& algorithm) {
    set_pointers(operands);
    void* const scratch = session.scratch(algorithm.workspaceSize);
    return cublasLtMatmul(session.cublaslt(), descriptor_.get(), scalar(product_.dtype, true),
                          operands.a, a_.get(), operands.b, b_.get(),
                          scalar(product_.dtype, product_.write == Write::add), operands.d,
                          d_.get(), operands.d, d_.get(), &algorithm.algo, scratch,
                          algorithm.workspaceSize, session.stream().get());
  }

 private:
  MatrixLayout stored(cublasOperation_t op, std::size_t rows, std::size_t columns) const {
    return op == CUBLAS_OP_N ? MatrixLayout(type_of(product_.dtype), rows, columns)
                             : MatrixLayout(type_of(product_.dtype), columns, rows);
  }

  void set_pointers(const Operands& operands) {
    if ((epilogue_ & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADB)) != 0)
      descriptor_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.vector);
  }

  Product product_;
  std::uint32_t epilogue_;
  MatmulDescriptor descriptor_;
  MatrixLayout a_;
  MatrixLayout b_;
  MatrixLayout d_;
};

}  // namespace shardwise::detail::cuda
