#pragma once
// The meaning of cuDNN's return codes.

#include <cudnn.h>

#include <string>

#include "shardwise/backend/cuda/check.hpp"

#if CUDNN_VERSION < 90800
#error "shardwise: backend/cuda needs cuDNN 9.8 or newer."
#endif

namespace shardwise::detail::cuda {

inline const char* advice(cudnnStatus_t status) {
  if (status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR)
    return "The library does not do this on this device: use another dtype, other sizes, or a "
           "newer cuDNN";
  return "CUDNN_LOGLEVEL_DBG=2 and CUDNN_LOGDEST_DBG=stderr in the environment make the library "
         "say more";
}

/// throws   memory_error if the library has no memory, backend_error for every other failure
inline void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string text = cudnnGetErrorString(status);
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    refuse_memory("cuDNN", call, text, 0);
  refuse("cuDNN", call, text, advice(status));
}

}  // namespace shardwise::detail::cuda
