#pragma once
// What one chooses for a rank that computes on a GPU.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <optional>

#include "shardwise/version.hpp"

namespace shardwise {

/// Options of `Cuda`. What the caller hands over stays the caller's and outlives the object.
struct CudaOptions {
  int device = 0;  ///< among those that the process sees
  /// A stream of that device for all work; null: one of its own.
  cudaStream_t stream = nullptr;
  cublasLtHandle_t cublaslt = nullptr;  ///< null: one of its own

  ///@{
  /// The caller's memory, both or none: bytes on the device, aligned to 256, null if there are
  /// none; and back, when all work of the stream is done, which must not throw. None: cudaMalloc
  /// and cudaFree.
  std::function<void*(std::size_t)> allocate = nullptr;
  std::function<void(void*)> release = nullptr;
  ///@}

  /// What a product may use of scratch memory, at most. The default is what NVIDIA recommends for
  /// compute capability 9.0.
  std::size_t workspace_bytes = std::size_t{32} << 20;

  /// The same for a convolution; none: an eighth of the device's memory, in all, divided by
  /// `ranks_on_device`. cuDNN's engines for tensor cores take images with channels innermost, and
  /// turn ours there and back in about so much memory as images and result take: where that is more
  /// than this, an engine without tensor cores is used. No more is taken than is used. It depends
  /// on nothing that changes between runs, and is to be the same on all ranks, so that they choose
  /// the same engine; `CudaDevices` see to that.
  std::optional<std::size_t> convolution_workspace_bytes = std::nullopt;
  int ranks_on_device = 1;  ///< that share the device, this one included

  /// Products in float may round their factors to TF32, ten bits of fraction: several times as
  /// fast, and no longer what float promises.
  bool tf32 = false;

  /// Products may apply ReLU themselves, which saves a pass over their results. NVIDIA does not
  /// say what becomes of a NaN there; elsewhere in this library it stays one.
  bool fused_relu = false;

  /// The best algorithms that cuBLASLt proposes for a product are timed, once, and the fastest is
  /// kept; otherwise its first proposal is. Ranks may then choose differently, so that products
  /// which all of them compute alike differ in their last bits.
  bool time_candidates = false;
};

}  // namespace shardwise
