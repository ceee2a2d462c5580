#pragma once
// A product and its chosen algorithm.

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

/// The fastest of the proposals on these operands, which stay unchanged. Proposals that the library
/// rejects do not count. Waits for the stream.
/// throws   backend_error if it rejects all, or while the stream is captured into a graph
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

/// A product, its epilogue, and algorithms for it.
class MatmulPlan {
 public:
  /// Uses the first of the epilogues that the library has an algorithm for.
  /// throws   backend_error if it has no algorithm for any of them
  static MatmulPlan make(Session& session, const Product& product, const Operands& operands,
                         std::initializer_list<std::uint32_t> epilogues) {
    for (const std::uint32_t epilogue : epilogues) {
      Matmul matmul(product, epilogue, session.options().tf32);
      const bool times = session.options().time_candidates;
      MatmulProposals proposals =
          matmul.proposals(session, operands, times ? MatmulProposals::most : 3);
      if (proposals.count == 0) continue;
      if (times && proposals.count > 1)
        std::swap(proposals.all[0], proposals.all[fastest(session, matmul, operands, proposals)]);
      return MatmulPlan(std::move(matmul), proposals);
    }
    refuse("cuBLASLt", "cublasLtMatmulAlgoGetHeuristic", "no algorithm for this product",
           advice(CUBLAS_STATUS_NOT_SUPPORTED));
  }

  /// Bits of cublasLtEpilogue_t: the operations of the product itself.
  std::uint32_t epilogue() const { return matmul_.epilogue(); }

  /// Uses the best algorithm that the library has not rejected in a call; a rejected one is not
  /// tried again.
  void run(Session& session, const Operands& operands) {
    for (;; ++chosen_) {
      const cublasStatus_t status = matmul_.launch(session, operands, proposals_.all[chosen_]);
      if (status == CUBLAS_STATUS_NOT_SUPPORTED && chosen_ + 1 < proposals_.count) continue;
      return check(status, "cublasLtMatmul");
    }
  }

 private:
  MatmulPlan(Matmul&& matmul, const MatmulProposals& proposals)
      : matmul_(std::move(matmul)), proposals_(proposals) {}

  Matmul matmul_;
  MatmulProposals proposals_;  ///< the best first
  std::size_t chosen_ = 0;
};

}  // namespace shardwise::detail::cuda
