#pragma once
// The primitives that compute the products of a linear layer.

#include <oneapi/dnnl/dnnl.h>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/onednn/attributes.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/matrix.hpp"
#include "shardwise/backend/onednn/primitive.hpp"
#include "shardwise/backend/onednn/session.hpp"

namespace shardwise::detail::onednn {

/// A matrix product c = activation(a b + bias), or c += a b, with the layouts of its matrices.
struct MatrixProduct {
  MatrixDesc a;
  MatrixDesc b;
  MatrixDesc c;
  bool with_bias = false;
  Activation activation = Activation::none;
  Write write = Write::replace;
};

inline Descriptor describe(Session& session, const MatrixProduct& product, const MatrixDesc& bias,
                           const Purpose& purpose) {
  dnnl_matmul_desc_t op;
  check(dnnl_matmul_desc_init(&op, &product.a, &product.b, product.with_bias ? &bias : nullptr,
                              &product.c),
        "dnnl_matmul_desc_init", purpose);
  return describe(session, &op, attributes(product.write, product.activation, purpose), purpose);
}

/// Arguments to run: a, b, c and, with a bias, the bias.
inline Primitive matrix_product(Session& session, const MatrixProduct& product,
                                const Purpose& purpose) {
  const MatrixDesc bias = row_major(1, static_cast<std::size_t>(product.c.dims[1]), purpose);
  const Descriptor desc = describe(session, product, bias, purpose);
  if (!product.with_bias)
    return {session,
            desc,
            {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}},
            purpose};
  return {session,
          desc,
          {{DNNL_ARG_SRC, product.a},
           {DNNL_ARG_WEIGHTS, product.b},
           {DNNL_ARG_DST, product.c},
           {DNNL_ARG_BIAS, bias}},
          purpose};
}

/// The layout of `b` that the library computes fastest with.
inline MatrixDesc best_layout(Session& session, const MatrixProduct& product,
                              const Purpose& purpose) {
  MatrixProduct open = product;
  open.b = library_chosen(static_cast<std::size_t>(product.b.dims[0]),
                          static_cast<std::size_t>(product.b.dims[1]), purpose);
  const MatrixDesc bias = row_major(1, static_cast<std::size_t>(product.c.dims[1]), purpose);
  const Descriptor desc = describe(session, open, bias, purpose);
  return *dnnl_primitive_desc_query_md(desc.get(), dnnl_query_weights_md, 0);
}

/// Copies a matrix from one layout into another. Arguments to run: from, to.
inline Primitive reorder(Session& session, const MatrixDesc& from, const MatrixDesc& to,
                         const Purpose& purpose) {
  dnnl_primitive_desc_t handle = nullptr;
  check(dnnl_reorder_primitive_desc_create(
            &handle, &from, session.engine(), &to, session.engine(),
            attributes(Write::replace, Activation::none, purpose).get()),
        "dnnl_reorder_primitive_desc_create", purpose);
  const Descriptor desc(handle);
  return {session, desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, purpose};
}

/// y = activation(x wᵀ + bias) as the library's layer, w plain. Arguments: x, w, y and, with a
/// bias, the bias.
inline Primitive inner_product(Session& session, bool with_bias, Activation activation,
                               const Purpose& purpose) {
  const MatrixDesc x = row_major(purpose.rows, purpose.in, purpose);
  const MatrixDesc w = row_major(purpose.out, purpose.in, purpose);
  const MatrixDesc y = row_major(purpose.rows, purpose.out, purpose);
  const MatrixDesc bias = vector_of(purpose.out, purpose);
  dnnl_inner_product_desc_t op;
  check(dnnl_inner_product_forward_desc_init(&op, dnnl_forward_inference, &x, &w,
                                             with_bias ? &bias : nullptr, &y),
        "dnnl_inner_product_forward_desc_init", purpose);
  const Descriptor desc =
      describe(session, &op, attributes(Write::replace, activation, purpose), purpose);
  if (!with_bias)
    return {session, desc, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}}, purpose};
  return {session,
          desc,
          {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}, {DNNL_ARG_BIAS, bias}},
          purpose};
}

/// dx = dy w as the library's layer, w plain. Arguments: dy, w, dx.
inline Primitive inner_product_backward(Session& session, const Purpose& purpose) {
  const MatrixDesc dx = row_major(purpose.rows, purpose.in, purpose);
  const MatrixDesc w = row_major(purpose.out, purpose.in, purpose);
  const MatrixDesc dy = row_major(purpose.rows, purpose.out, purpose);
  const Attributes attr = attributes(Write::replace, Activation::none, purpose);
  dnnl_inner_product_desc_t forward;
  check(
      dnnl_inner_product_forward_desc_init(&forward, dnnl_forward_training, &dx, &w, nullptr, &dy),
      "dnnl_inner_product_forward_desc_init", purpose);
  const Descriptor hint = describe(session, &forward, attr, purpose);
  dnnl_inner_product_desc_t op;
  check(dnnl_inner_product_backward_data_desc_init(&op, &dx, &w, &dy),
        "dnnl_inner_product_backward_data_desc_init", purpose);
  const Descriptor desc = describe(session, &op, attr, purpose, hint.get());
  return {session,
          desc,
          {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DIFF_SRC, dx}},
          purpose};
}

}  // namespace shardwise::detail::onednn
