#pragma once
// Turns an error of oneDNN into an exception that names the call and the product.

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <cstddef>
#include <string>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::onednn {

/// The product for which oneDNN is called, for the text of an error.
struct ErrorContext {
  const char* product = "engine";  // "forward", "backward_input", ...
  Dtype dtype = Dtype::float32;
  std::size_t rows = 0;
  std::size_t in = 0;
  std::size_t out = 0;
};

[[noreturn]] inline void refuse(dnnl_status_t status, const char* call,
                                const ErrorContext& context) {
  const dnnl_version_t* version = dnnl_version();
  std::string text = "oneDNN " + std::to_string(version->major) + '.' +
                     std::to_string(version->minor) + '.' + std::to_string(version->patch) + ": " +
                     call + " returned " + dnnl_status2str(status) + " for " + context.product +
                     " in " + std::string(name(context.dtype)) + " with " +
                     std::to_string(context.rows) + " rows, " + std::to_string(context.in) +
                     " in, " + std::to_string(context.out) + " out";
  if (status == dnnl_unimplemented)
    text += std::string("; the instruction set is ") +
            dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa()) +
            ", and bfloat16 needs AVX-512: use float, or the backend Reference";
  if (status == dnnl_out_of_memory) text += "; use fewer rows at once, or smaller layers";
  throw backend_error(text);
}

/// Throws backend_error unless `status` is success.
inline void check(dnnl_status_t status, const char* call, const ErrorContext& context) {
  if (status != dnnl_success) refuse(status, call, context);
}

}  // namespace shardwise::detail::onednn
