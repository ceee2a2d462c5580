#pragma once
// One matrix product as a call of cuBLASLt written by hand, by the fastest of the algorithms that
// the library proposes: as many as shardwise tries, and of the same kind.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "shardwise/backend/cuda/cublaslt_handle.hpp"
#include "shardwise/backend/cuda/cudnn_check.hpp"
#include "shardwise/backend/cuda/device_memory.hpp"
#include "shardwise/backend/cuda/stream.hpp"

namespace by_hand {

namespace cuda = shardwise::detail::cuda;

/// Of five runs after one that loads the kernel; infinite if the library refuses. launch() puts one
/// on the stream by the library's `call`, and returns what that says.
template <class Launch>
float milliseconds_of(cudaStream_t stream, const char* call, Launch launch) {
  if (launch() != decltype(launch()){}) return std::numeric_limits<float>::infinity();
  constexpr int runs = 5;
  cuda::Event begin(cuda::Event::Use::time), end(cuda::Event::Use::time);
  begin.record(stream);
  for (int run = 0; run < runs; ++run) cuda::check(launch(), call);
  end.record(stream);
  end.synchronize();
  return cuda::Event::milliseconds(begin, end);
}

/// Where products run, and with what.
struct Library {
  cublasLtHandle_t handle;
  cudaStream_t stream;
  void* workspace;
  std::size_t workspace_bytes;
};

/// D [m, n] = epilogue(op(A) op(B)), column-major and dense, summed over k.
struct ProductCall {
  cudaDataType_t type;
  cublasComputeType_t compute;
  cublasOperation_t op_a, op_b;
  std::size_t m, n, k;
  const void* a;
  const void* b;
  void* d;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* vector = nullptr;  ///< of the epilogue: a bias, or its gradient
};

/// Runs it again and again.
class Product {
 public:
  /// throws  std::runtime_error if the library has no algorithm that runs
  Product(const Library& library, const ProductCall& call)
      : library_(library),
        call_(call),
        descriptor_(call.compute, CUDA_R_32F),
        a_(stored(call.op_a, call.m, call.k)),
        b_(stored(call.op_b, call.k, call.n)),
        d_(call.type, call.m, call.n) {
    descriptor_.set(CUBLASLT_MATMUL_DESC_TRANSA, call.op_a);
    descriptor_.set(CUBLASLT_MATMUL_DESC_TRANSB, call.op_b);
    descriptor_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, call.epilogue);
    if (call.vector != nullptr) descriptor_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.vector);
    choose();
  }

  void operator()() { cuda::check(launch(best_), "cublasLtMatmul"); }

 private:
  static constexpr int candidates = 8;

  cuda::MatrixLayout stored(cublasOperation_t op, std::size_t rows, std::size_t columns) const {
    return op == CUBLAS_OP_N ? cuda::MatrixLayout(call_.type, rows, columns)
                             : cuda::MatrixLayout(call_.type, columns, rows);
  }

  cublasStatus_t launch(const cublasLtMatmulHeuristicResult_t& algorithm) {
    static constexpr float one = 1, zero = 0;
    return cublasLtMatmul(library_.handle, descriptor_.get(), &one, call_.a, a_.get(), call_.b,
                          b_.get(), &zero, call_.d, d_.get(), call_.d, d_.get(), &algorithm.algo,
                          library_.workspace, algorithm.workspaceSize, library_.stream);
  }

  void choose() {
    cuda::MatmulPreference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, library_.workspace_bytes);
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    std::array<cublasLtMatmulHeuristicResult_t, candidates> all{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        library_.handle, descriptor_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
        preference.get(), candidates, all.data(), &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
      cuda::check(status, "cublasLtMatmulAlgoGetHeuristic");
    float best_time = std::numeric_limits<float>::infinity();
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulHeuristicResult_t& one = all[static_cast<std::size_t>(i)];
      const float time =
          milliseconds_of(library_.stream, "cublasLtMatmul", [&] { return launch(one); });
      if (time < best_time) best_time = time, best_ = one;
    }
    if (best_time == std::numeric_limits<float>::infinity())
      throw std::runtime_error("by hand: none of " + std::to_string(count) +
                               " algorithms of cuBLASLt runs");
  }

  Library library_;
  ProductCall call_;
  cuda::MatmulDescriptor descriptor_;
  cuda::MatrixLayout a_, b_, d_;
  cublasLtMatmulHeuristicResult_t best_{};
};

}  // namespace by_hand
