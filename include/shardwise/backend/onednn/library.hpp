#pragma once
// The differences between oneDNN 2 and 3: how descriptors are made, and two post-operations.

#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <memory>

#include "shardwise/backend/onednn/handle.hpp"

#if DNNL_VERSION_MAJOR != 2 && DNNL_VERSION_MAJOR != 3
#error "shardwise: the oneDNN backend is written for oneDNN 2 and 3"
#endif

namespace shardwise::detail::onednn {

/// The type in which the library takes the layout of a tensor.
using ConstDesc = decltype(dnnl_primitive_desc_query_md(nullptr, dnnl_query_undef, 0));

/// The options of a convolution besides its tensors, for the library.
struct ConvolutionSteps {
  std::array<dnnl_dim_t, 3> strides{}, dilates{}, before{}, after{};
};

/// The tensors of a convolution; for a gradient, x, w or y is its own gradient. `bias` may be null.
struct ConvolutionDescs {
  ConstDesc x;
  ConstDesc w;
  ConstDesc bias;
  ConstDesc y;
};

/// The options of a pooling besides its tensors, for the library.
struct PoolingSteps {
  dnnl_alg_kind_t algorithm = dnnl_alg_kind_undef;
  std::array<dnnl_dim_t, 3> kernel{};
  ConvolutionSteps steps;
};

#if DNNL_VERSION_MAJOR == 2

/// The layout of a tensor, constant after its creation.
class MemoryDesc {
 public:
  dnnl_status_t create(int axes, const dnnl_dims_t dims, dnnl_data_type_t dtype,
                       const dnnl_dims_t strides) {
    return dnnl_memory_desc_init_by_strides(&desc_, axes, dims, dtype, strides);
  }
  dnnl_status_t create(int axes, const dnnl_dims_t dims, dnnl_data_type_t dtype,
                       dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(&desc_, axes, dims, dtype, tag);
  }
  dnnl_status_t copy(ConstDesc other) {
    desc_ = *other;
    return dnnl_success;
  }
  ConstDesc get() const { return &desc_; }

 private:
  dnnl_memory_desc_t desc_{};
};

inline dnnl_status_t append_eltwise(dnnl_post_ops_t post_ops, dnnl_alg_kind_t kind, float alpha) {
  return dnnl_post_ops_append_eltwise(post_ops, 1.0F, kind, alpha, 0.0F);
}

inline dnnl_status_t append_sum(dnnl_post_ops_t post_ops) {
  return dnnl_post_ops_append_sum(post_ops, 1.0F);
}

inline dnnl_status_t create_matmul(dnnl_primitive_desc_t* made, dnnl_engine_t engine, ConstDesc a,
                                   ConstDesc b, ConstDesc bias, ConstDesc c,
                                   const Attributes& attr) {
  dnnl_matmul_desc_t op;
  const dnnl_status_t status = dnnl_matmul_desc_init(&op, a, b, bias, c);
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(made, &op, attr.get(), engine, nullptr);
}

inline dnnl_status_t create_inner_product(dnnl_primitive_desc_t* made, dnnl_engine_t engine,
                                          dnnl_prop_kind_t kind, ConstDesc x, ConstDesc w,
                                          ConstDesc bias, ConstDesc y, const Attributes& attr) {
  dnnl_inner_product_desc_t op;
  const dnnl_status_t status = dnnl_inner_product_forward_desc_init(&op, kind, x, w, bias, y);
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(made, &op, attr.get(), engine, nullptr);
}

inline dnnl_status_t create_inner_product_backward(dnnl_primitive_desc_t* made,
                                                   dnnl_engine_t engine, ConstDesc dx, ConstDesc w,
                                                   ConstDesc dy, const Descriptor& forward,
                                                   const Attributes& attr) {
  dnnl_inner_product_desc_t op;
  const dnnl_status_t status = dnnl_inner_product_backward_data_desc_init(&op, dx, w, dy);
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(made, &op, attr.get(), engine, forward.get());
}

inline dnnl_status_t create_convolution(dnnl_primitive_desc_t* made, dnnl_engine_t engine,
                                        const ConvolutionDescs& tensors,
                                        const ConvolutionSteps& steps, const Attributes& attr) {
  dnnl_convolution_desc_t op;
  const dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
      &op, dnnl_forward_training, dnnl_convolution_direct, tensors.x, tensors.w, tensors.bias,
      tensors.y, steps.strides.data(), steps.dilates.data(), steps.before.data(),
      steps.after.data());
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(made, &op, attr.get(), engine, nullptr);
}

inline dnnl_status_t create_convolution_backward_input(
    dnnl_primitive_desc_t* made, dnnl_engine_t engine, const ConvolutionDescs& tensors,
    const ConvolutionSteps& steps, const Descriptor& forward, const Attributes& attr) {
  dnnl_convolution_desc_t op;
  const dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
      &op, dnnl_convolution_direct, tensors.x, tensors.w, tensors.y, steps.strides.data(),
      steps.dilates.data(), steps.before.data(), steps.after.data());
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(made, &op, attr.get(), engine, forward.get());
}

inline dnnl_status_t create_convolution_backward_weight(
    dnnl_primitive_desc_t* made, dnnl_engine_t engine, const ConvolutionDescs& tensors,
    const ConvolutionSteps& steps, const Descriptor& forward, const Attributes& attr) {
  dnnl_convolution_desc_t op;
  const dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
      &op, dnnl_convolution_direct, tensors.x, tensors.w, tensors.bias, tensors.y,
      steps.strides.data(), steps.dilates.data(), steps.before.data(), steps.after.data());
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(made, &op, attr.get(), engine, forward.get());
}

inline dnnl_status_t create_pooling(dnnl_primitive_desc_t* made, dnnl_engine_t engine, ConstDesc x,
                                    ConstDesc y, const PoolingSteps& p, const Attributes& attr) {
  dnnl_pooling_v2_desc_t op;
  const dnnl_status_t status = dnnl_pooling_v2_forward_desc_init(
      &op, dnnl_forward_training, p.algorithm, x, y, p.steps.strides.data(), p.kernel.data(),
      p.steps.dilates.data(), p.steps.before.data(), p.steps.after.data());
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(made, &op, attr.get(), engine, nullptr);
}

inline dnnl_status_t create_pooling_backward(dnnl_primitive_desc_t* made, dnnl_engine_t engine,
                                             ConstDesc dx, ConstDesc dy, const PoolingSteps& p,
                                             const Descriptor& forward, const Attributes& attr) {
  dnnl_pooling_v2_desc_t op;
  const dnnl_status_t status = dnnl_pooling_v2_backward_desc_init(
      &op, p.algorithm, dx, dy, p.steps.strides.data(), p.kernel.data(), p.steps.dilates.data(),
      p.steps.before.data(), p.steps.after.data());
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(made, &op, attr.get(), engine, forward.get());
}

#else

/// The layout of a tensor, constant after its creation; copies share it.
class MemoryDesc {
 public:
  dnnl_status_t create(int axes, const dnnl_dims_t dims, dnnl_data_type_t dtype,
                       const dnnl_dims_t strides) {
    dnnl_memory_desc_t made = nullptr;
    const dnnl_status_t status =
        dnnl_memory_desc_create_with_strides(&made, axes, dims, dtype, strides);
    return own(made, status);
  }
  dnnl_status_t create(int axes, const dnnl_dims_t dims, dnnl_data_type_t dtype,
                       dnnl_format_tag_t tag) {
    dnnl_memory_desc_t made = nullptr;
    const dnnl_status_t status = dnnl_memory_desc_create_with_tag(&made, axes, dims, dtype, tag);
    return own(made, status);
  }
  dnnl_status_t copy(ConstDesc other) {
    dnnl_memory_desc_t made = nullptr;
    const dnnl_status_t status = dnnl_memory_desc_clone(&made, other);
    return own(made, status);
  }
  ConstDesc get() const { return desc_.get(); }

 private:
  dnnl_status_t own(dnnl_memory_desc_t made, dnnl_status_t status) {
    if (status == dnnl_success) desc_.reset(made, dnnl_memory_desc_destroy);
    return status;
  }

  std::shared_ptr<dnnl_memory_desc> desc_;
};

inline dnnl_status_t append_eltwise(dnnl_post_ops_t post_ops, dnnl_alg_kind_t kind, float alpha) {
  return dnnl_post_ops_append_eltwise(post_ops, kind, alpha, 0.0F);
}

inline dnnl_status_t append_sum(dnnl_post_ops_t post_ops) {
  return dnnl_post_ops_append_sum(post_ops, 1.0F, 0, dnnl_data_type_undef);
}

inline dnnl_status_t create_matmul(dnnl_primitive_desc_t* made, dnnl_engine_t engine, ConstDesc a,
                                   ConstDesc b, ConstDesc bias, ConstDesc c,
                                   const Attributes& attr) {
  return dnnl_matmul_primitive_desc_create(made, engine, a, b, bias, c, attr.get());
}

inline dnnl_status_t create_inner_product(dnnl_primitive_desc_t* made, dnnl_engine_t engine,
                                          dnnl_prop_kind_t kind, ConstDesc x, ConstDesc w,
                                          ConstDesc bias, ConstDesc y, const Attributes& attr) {
  return dnnl_inner_product_forward_primitive_desc_create(made, engine, kind, x, w, bias, y,
                                                          attr.get());
}

inline dnnl_status_t create_inner_product_backward(dnnl_primitive_desc_t* made,
                                                   dnnl_engine_t engine, ConstDesc dx, ConstDesc w,
                                                   ConstDesc dy, const Descriptor& forward,
                                                   const Attributes& attr) {
  return dnnl_inner_product_backward_data_primitive_desc_create(made, engine, dx, w, dy,
                                                                forward.get(), attr.get());
}

inline dnnl_status_t create_convolution(dnnl_primitive_desc_t* made, dnnl_engine_t engine,
                                        const ConvolutionDescs& tensors,
                                        const ConvolutionSteps& steps, const Attributes& attr) {
  return dnnl_convolution_forward_primitive_desc_create(
      made, engine, dnnl_forward_training, dnnl_convolution_direct, tensors.x, tensors.w,
      tensors.bias, tensors.y, steps.strides.data(), steps.dilates.data(), steps.before.data(),
      steps.after.data(), attr.get());
}

inline dnnl_status_t create_convolution_backward_input(
    dnnl_primitive_desc_t* made, dnnl_engine_t engine, const ConvolutionDescs& tensors,
    const ConvolutionSteps& steps, const Descriptor& forward, const Attributes& attr) {
  return dnnl_convolution_backward_data_primitive_desc_create(
      made, engine, dnnl_convolution_direct, tensors.x, tensors.w, tensors.y, steps.strides.data(),
      steps.dilates.data(), steps.before.data(), steps.after.data(), forward.get(), attr.get());
}

inline dnnl_status_t create_convolution_backward_weight(
    dnnl_primitive_desc_t* made, dnnl_engine_t engine, const ConvolutionDescs& tensors,
    const ConvolutionSteps& steps, const Descriptor& forward, const Attributes& attr) {
  return dnnl_convolution_backward_weights_primitive_desc_create(
      made, engine, dnnl_convolution_direct, tensors.x, tensors.w, tensors.bias, tensors.y,
      steps.strides.data(), steps.dilates.data(), steps.before.data(), steps.after.data(),
      forward.get(), attr.get());
}

inline dnnl_status_t create_pooling(dnnl_primitive_desc_t* made, dnnl_engine_t engine, ConstDesc x,
                                    ConstDesc y, const PoolingSteps& p, const Attributes& attr) {
  return dnnl_pooling_forward_primitive_desc_create(
      made, engine, dnnl_forward_training, p.algorithm, x, y, p.steps.strides.data(),
      p.kernel.data(), p.steps.dilates.data(), p.steps.before.data(), p.steps.after.data(),
      attr.get());
}

inline dnnl_status_t create_pooling_backward(dnnl_primitive_desc_t* made, dnnl_engine_t engine,
                                             ConstDesc dx, ConstDesc dy, const PoolingSteps& p,
                                             const Descriptor& forward, const Attributes& attr) {
  return dnnl_pooling_backward_primitive_desc_create(
      made, engine, p.algorithm, dx, dy, p.steps.strides.data(), p.kernel.data(),
      p.steps.dilates.data(), p.steps.before.data(), p.steps.after.data(), forward.get(),
      attr.get());
}

#endif

}  // namespace shardwise::detail::onednn
