#pragma once
// What the processor can do.

#include <oneapi/dnnl/dnnl.h>

#include "shardwise/version.hpp"

namespace shardwise::detail::onednn {

/// Whether the processor multiplies bf16. With AVX-512 alone, the library computes such products
/// from floats, and takes three times as long as for products of floats.
inline bool multiplies_bf16() {
  constexpr int native = dnnl_cpu_isa_avx512_core_bf16;
  return (dnnl_get_effective_cpu_isa() & native) == native;
}

}  // namespace shardwise::detail::onednn
