#pragma once
// Owners of oneDNN's objects: each is a unique_ptr that calls the matching dnnl_..._destroy.

#include <oneapi/dnnl/dnnl.h>

#include <memory>

#include "shardwise/backend/detail/destroyer.hpp"

namespace shardwise::detail::onednn {

using Engine = std::unique_ptr<dnnl_engine, Destroyer<dnnl_engine_destroy>>;
using Stream = std::unique_ptr<dnnl_stream, Destroyer<dnnl_stream_destroy>>;
using Memory = std::unique_ptr<dnnl_memory, Destroyer<dnnl_memory_destroy>>;
using PrimitiveHandle = std::unique_ptr<dnnl_primitive, Destroyer<dnnl_primitive_destroy>>;
using Descriptor = std::unique_ptr<dnnl_primitive_desc, Destroyer<dnnl_primitive_desc_destroy>>;
using Attributes = std::unique_ptr<dnnl_primitive_attr, Destroyer<dnnl_primitive_attr_destroy>>;
using PostOps = std::unique_ptr<dnnl_post_ops, Destroyer<dnnl_post_ops_destroy>>;

}  // namespace shardwise::detail::onednn
