#pragma once
// Which dtypes oneDNN computes in on this processor.

#include <oneapi/dnnl/dnnl.h>

#include <type_traits>

#include "shardwise/core/dtype.hpp"
#include "support/skipped.hpp"

namespace testing {

/// Whether oneDNN has all products and poolings in T here, for bf16 from AVX-512 on. Says that a
/// test is skipped if it does not.
template <class T>
bool onednn_computes() {
  constexpr int needed = dnnl_cpu_isa_avx512_core;
  const bool computes =
      !std::is_same_v<T, shardwise::bf16> || (dnnl_get_effective_cpu_isa() & needed) == needed;
  if (!computes) skip("oneDNN in bf16, because this processor has no AVX-512");
  return computes;
}

}  // namespace testing
