#pragma once
// A product with the algorithm that was chosen for it.

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/cublaslt_handle.hpp"
#include "shardwise/backend/cuda/cublaslt_matmul.hpp"
#include "shardwise/backend/cuda/cublaslt_product.hpp"
#include "shardwise/backend/cuda/device_memory.hpp"
#include "shardwise/backend/cuda/fastest.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

/// Which of the proposals is the fastest on these operands, of which none is changed but an
/// auxiliary matrix that the product gives. Those that the library then refuses do not count. Waits
/// for the stream. throws  backend_error if it refuses all, or while the stream is captured into a
/// graph
inline std::size_t fastest(Session& session, Matmul& matmul, const Operands& operands,
                           const MatmulProposals& proposals) {
  const Product& product = matmul.product();
  const std::size_t bytes = size_of(product.dtype);
  const cudaStream_t stream = session.stream().get();
  require_no_capture(stream, "algorithms cannot be timed");
  const DeviceBuffer d(session.memory(), product.m * product.n * bytes);
  const DeviceBuffer gradient(session.memory(), product.n * bytes);
  check(cudaMemsetAsync(d.data(), 0, d.bytes(), stream), "cudaMemsetAsync");  // += reads it
  Operands trial = operands;
  trial.d = d.data();
  if (matmul.epilogue() == CUBLASLT_EPILOGUE_BGRADB) trial.vector = gradient.data();
  return fastest(session, proposals.count, "cublasLtMatmul",
                 [&](std::size_t i) { return matmul.launch(session, trial, proposals.all[i]); });
}

/// A product, its epilogue, and the algorithm.
class MatmulPlan {
 public:
  /// With the first of the epilogues that the library has an algorithm for.
  /// throws  backend_error if it has none for any
  static MatmulPlan make(Session& session, const Product& product, const Operands& operands,
                         std::initializer_list<std::uint32_t> epilogues) {
    for (const std::uint32_t epilogue : epilogues) {
      Matmul matmul(product, epilogue, session.options().tf32);
      const bool times = session.options().time_candidates;
      const MatmulProposals proposals =
          matmul.proposals(session, operands, times ? MatmulProposals::most : 1);
      if (proposals.count == 0) continue;
      const std::size_t chosen =
          proposals.count > 1 ? fastest(session, matmul, operands, proposals) : 0;
      return MatmulPlan(std::move(matmul), proposals.all[chosen]);
    }
    refuse("cuBLASLt", "cublasLtMatmulAlgoGetHeuristic", "no algorithm for this product",
           advice(CUBLAS_STATUS_NOT_SUPPORTED));
  }

  /// Bits of cublasLtEpilogue_t: what the product does by itself.
  std::uint32_t epilogue() const { return matmul_.epilogue(); }

  void run(Session& session, const Operands& operands) {
    check(matmul_.launch(session, operands, algorithm_), "cublasLtMatmul");
  }

 private:
  MatmulPlan(Matmul&& matmul, const cublasLtMatmulHeuristicResult_t& algorithm)
      : matmul_(std::move(matmul)), algorithm_(algorithm) {}

  Matmul matmul_;
  cublasLtMatmulHeuristicResult_t algorithm_;
};

}  // namespace shardwise::detail::cuda
