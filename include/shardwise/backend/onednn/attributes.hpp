#pragma once
// The attributes of a primitive besides its product.

#include <oneapi/dnnl/dnnl.h>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/handle.hpp"
#include "shardwise/backend/onednn/library.hpp"

namespace shardwise::detail::onednn {

inline void append(dnnl_post_ops_t post_ops, Activation activation, const ErrorContext& context) {
  const auto eltwise = [&](dnnl_alg_kind_t kind, float alpha) {
    check(append_eltwise(post_ops, kind, alpha), "dnnl_post_ops_append_eltwise", context);
  };
  switch (activation) {
    case Activation::none:
      return;
    case Activation::relu:
      // x > 0 ? x : 0 (e^x - 1). The library's own relu is a maximum that turns NaN into 0, so
      // training would not notice a NaN. Costs 2 % of a product of 1024 inputs.
      return eltwise(dnnl_eltwise_elu, 0.0F);
    case Activation::gelu:
      return eltwise(dnnl_eltwise_gelu_erf, 0.0F);
    case Activation::gelu_tanh:
      return eltwise(dnnl_eltwise_gelu_tanh, 0.0F);
    case Activation::silu:
      return eltwise(dnnl_eltwise_swish, 1.0F);
    case Activation::tanh:
      return eltwise(dnnl_eltwise_tanh, 0.0F);
    case Activation::sigmoid:
      return eltwise(dnnl_eltwise_logistic, 0.0F);
  }
}

/// For Write::add the output is added to; then the activation. The caller gives scratch memory,
/// unless its size is not known before a run.
inline Attributes attributes(Write write, Activation activation, const ErrorContext& context,
                             dnnl_scratchpad_mode_t scratch = dnnl_scratchpad_mode_user) {
  dnnl_primitive_attr_t attr = nullptr;
  check(dnnl_primitive_attr_create(&attr), "dnnl_primitive_attr_create", context);
  Attributes result(attr);
  check(dnnl_primitive_attr_set_scratchpad_mode(attr, scratch),
        "dnnl_primitive_attr_set_scratchpad_mode", context);

  dnnl_post_ops_t post_ops = nullptr;
  check(dnnl_post_ops_create(&post_ops), "dnnl_post_ops_create", context);
  const PostOps owner(post_ops);
  if (write == Write::add) check(append_sum(post_ops), "dnnl_post_ops_append_sum", context);
  append(post_ops, activation, context);
  check(dnnl_primitive_attr_set_post_ops(attr, post_ops), "dnnl_primitive_attr_set_post_ops",
        context);
  return result;
}

}  // namespace shardwise::detail::onednn
