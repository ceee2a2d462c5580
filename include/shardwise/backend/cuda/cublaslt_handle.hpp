#pragma once
// Owners of cuBLASLt's objects, and the meaning of its return codes.

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/detail/destroyer.hpp"

namespace shardwise::detail::cuda {

inline const char* advice(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "cuBLAS found no working device or driver: see what nvidia-smi says";
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "The library does not do this on this device: use another dtype, other sizes, or the "
             "library of a newer toolkit";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "A kernel has failed, maybe one before this call: compute-sanitizer, or "
             "CUDA_LAUNCH_BLOCKING=1, says which";
    default:
      return "CUBLASLT_LOG_LEVEL=5 in the environment makes the library say more";
  }
}

/// throws   memory_error if the library has no memory, backend_error for every other failure
inline void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text =
      std::string(cublasLtGetStatusName(status)) + " (" + cublasLtGetStatusString(status) + ')';
  if (status == CUBLAS_STATUS_ALLOC_FAILED) refuse_memory("cuBLASLt", call, text, 0);
  refuse("cuBLASLt", call, text, advice(status));
}

/// The library's context: its own, or the caller's.
class CublasLtHandle {
 public:
  CublasLtHandle(int device, cublasLtHandle_t adopted) : handle_(adopted) {
    if (adopted != nullptr) return;
    const OnDevice on(device);
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    own_.reset(handle_);
  }

  cublasLtHandle_t get() const { return handle_; }

 private:
  cublasLtHandle_t handle_;
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroyer<cublasLtDestroy>> own_;
};

/// The layout of a matrix in memory: column-major and dense.
class MatrixLayout {
 public:
  MatrixLayout(cudaDataType_t type, std::size_t rows, std::size_t columns) {
    cublasLtMatrixLayout_t layout = nullptr;
    check(cublasLtMatrixLayoutCreate(&layout, type, rows, columns, static_cast<std::int64_t>(rows)),
          "cublasLtMatrixLayoutCreate");
    layout_.reset(layout);
  }

  cublasLtMatrixLayout_t get() const { return layout_.get(); }

 private:
  std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroyer<cublasLtMatrixLayoutDestroy>> layout_;
};

/// The operations besides the product.
class MatmulDescriptor {
 public:
  MatmulDescriptor(cublasComputeType_t compute, cudaDataType_t scale) {
    cublasLtMatmulDesc_t descriptor = nullptr;
    check(cublasLtMatmulDescCreate(&descriptor, compute, scale), "cublasLtMatmulDescCreate");
    descriptor_.reset(descriptor);
  }

  /// `Value` has the type in the documentation of the attribute.
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(descriptor_.get(), attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }

  cublasLtMatmulDesc_t get() const { return descriptor_.get(); }

 private:
  std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroyer<cublasLtMatmulDescDestroy>> descriptor_;
};

/// The limits and requirements of an algorithm.
class MatmulPreference {
 public:
  MatmulPreference() {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    preference_.reset(preference);
  }

  /// `Value` has the type in the documentation of the attribute.
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference_.get(), attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }

  cublasLtMatmulPreference_t get() const { return preference_.get(); }

 private:
  std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroyer<cublasLtMatmulPreferenceDestroy>>
      preference_;
};

}  // namespace shardwise::detail::cuda
