#pragma once
// Options of a rank that computes on a GPU.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <optional>

#include "shardwise/version.hpp"

namespace shardwise {

/// Options of `Cuda`. It does not own the caller's objects; they must outlive it.
struct CudaOptions {
  int device = 0;  ///< among the devices of the process
  /// A stream of that device for all work; null: its own stream.
  cudaStream_t stream = nullptr;
  cublasLtHandle_t cublaslt = nullptr;  ///< null: its own handle

  ///@{
  /// The caller's memory functions, both or none. `allocate` returns bytes on the device, aligned
  /// to 256, or null if there are none. `release` gets them back after all work of the stream is
  /// done, and must not throw. Without them: cudaMalloc and cudaFree.
  std::function<void*(std::size_t)> allocate = nullptr;
  std::function<void(void*)> release = nullptr;
  ///@}

  /// The most scratch memory of a product. The default is NVIDIA's recommendation for compute
  /// capability 9.0.
  std::size_t workspace_bytes = std::size_t{32} << 20;

  /// The same for convolutions and attention; the default is an eighth of the device's whole
  /// memory, divided by `ranks_on_device`. cuDNN's engines for tensor cores need channels
  /// innermost, so they reorder images and results in about as much memory as these take. If that
  /// is more than this limit, an engine without tensor cores is used. An attention goes backward
  /// for as many samples at once as it has room for. Only memory in use is allocated. The limit
  /// does not depend on anything that changes between runs. It must be the same on all ranks, so
  /// that they choose the same engine; `CudaDevices` ensures this.
  std::optional<std::size_t> convolution_workspace_bytes = std::nullopt;
  int ranks_on_device = 1;  ///< ranks that share the device, with this one

  /// Products in float may round their factors to TF32, which has ten bits of fraction: several
  /// times as fast, but less exact than float.
  bool tf32 = false;

  /// Products may apply ReLU themselves, which saves a pass over their results. NVIDIA does not say
  /// whether this keeps NaN; elsewhere in this library ReLU does.
  bool fused_relu = false;

  /// Times the best algorithms that cuBLASLt proposes for a product, once, and keeps the fastest;
  /// otherwise the first proposal is used. Ranks may then choose differently, so products that all
  /// of them compute may differ in their last bits.
  bool time_candidates = false;
};

}  // namespace shardwise
