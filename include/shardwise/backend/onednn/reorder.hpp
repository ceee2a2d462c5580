#pragma once
// Copies between the layouts of one tensor.

#include <oneapi/dnnl/dnnl.h>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/onednn/attributes.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/library.hpp"
#include "shardwise/backend/onednn/primitive.hpp"
#include "shardwise/backend/onednn/session.hpp"

namespace shardwise::detail::onednn {

/// Copies, or adds, a tensor in one layout and dtype to one in another. Arguments of run: from, to.
inline Primitive reorder(Session& session, ConstDesc from, ConstDesc to, Write write,
                         const ErrorContext& context) {
  dnnl_primitive_desc_t handle = nullptr;
  check(dnnl_reorder_primitive_desc_create(&handle, from, session.engine(), to, session.engine(),
                                           attributes(write, Activation::none, context).get()),
        "dnnl_reorder_primitive_desc_create", context);
  const Descriptor desc(handle);
  return {session, desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, context};
}

}  // namespace shardwise::detail::onednn
