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
                           const ErrorContext& context) {
  dnnl_primitive_desc_t desc = nullptr;
  check(create_matmul(&desc, session.engine(), product.a.get(), product.b.get(),
                      product.with_bias ? bias.get() : nullptr, product.c.get(),
                      attributes(product.write, product.activation, context)),
        "the descriptor of matmul", context);
  return Descriptor(desc);
}

/// Arguments of run: a, b, c and, with a bias, the bias.
inline Primitive matrix_product(Session& session, const MatrixProduct& product,
                                const ErrorContext& context) {
  const MatrixDesc bias = row_major(1, product.c.columns, context);
  const Descriptor desc = describe(session, product, bias, context);
  if (!product.with_bias)
    return {session,
            desc,
            {{DNNL_ARG_SRC, product.a.get()},
             {DNNL_ARG_WEIGHTS, product.b.get()},
             {DNNL_ARG_DST, product.c.get()}},
            context};
  return {session,
          desc,
          {{DNNL_ARG_SRC, product.a.get()},
           {DNNL_ARG_WEIGHTS, product.b.get()},
           {DNNL_ARG_DST, product.c.get()},
           {DNNL_ARG_BIAS, bias.get()}},
          context};
}

/// The layout of `b` in which the library is fastest.
inline MatrixDesc best_layout(Session& session, const MatrixProduct& product,
                              const ErrorContext& context) {
  MatrixProduct open = product;
  open.b = library_chosen(product.b.rows, product.b.columns, context);
  const MatrixDesc bias = row_major(1, product.c.columns, context);
  const Descriptor desc = describe(session, open, bias, context);
  MatrixDesc best{product.b.rows, product.b.columns, {}};
  check(best.memory.copy(dnnl_primitive_desc_query_md(desc.get(), dnnl_query_weights_md, 0)),
        "the descriptor of a packed weight", context);
  return best;
}

/// y = activation(x wᵀ + bias) by the library's inner product, w plain. Arguments: x, w, y and,
/// with a bias, the bias.
inline Primitive inner_product(Session& session, bool with_bias, Activation activation,
                               const ErrorContext& context) {
  const MatrixDesc x = row_major(context.rows, context.in, context);
  const MatrixDesc w = row_major(context.out, context.in, context);
  const MatrixDesc y = row_major(context.rows, context.out, context);
  const MatrixDesc bias = vector_of(context.out, context);
  dnnl_primitive_desc_t handle = nullptr;
  check(create_inner_product(&handle, session.engine(), dnnl_forward_inference, x.get(), w.get(),
                             with_bias ? bias.get() : nullptr, y.get(),
                             attributes(Write::replace, activation, context)),
        "the descriptor of inner_product", context);
  const Descriptor desc(handle);
  if (!with_bias)
    return {session,
            desc,
            {{DNNL_ARG_SRC, x.get()}, {DNNL_ARG_WEIGHTS, w.get()}, {DNNL_ARG_DST, y.get()}},
            context};
  return {session,
          desc,
          {{DNNL_ARG_SRC, x.get()},
           {DNNL_ARG_WEIGHTS, w.get()},
           {DNNL_ARG_DST, y.get()},
           {DNNL_ARG_BIAS, bias.get()}},
          context};
}

/// dx = dy w by the library's inner product, w plain. Arguments: dy, w, dx.
inline Primitive inner_product_backward(Session& session, const ErrorContext& context) {
  const MatrixDesc dx = row_major(context.rows, context.in, context);
  const MatrixDesc w = row_major(context.out, context.in, context);
  const MatrixDesc dy = row_major(context.rows, context.out, context);
  const Attributes attr = attributes(Write::replace, Activation::none, context);
  dnnl_primitive_desc_t handle = nullptr;
  check(create_inner_product(&handle, session.engine(), dnnl_forward_training, dx.get(), w.get(),
                             nullptr, dy.get(), attr),
        "the descriptor of inner_product", context);
  const Descriptor forward(handle);
  check(create_inner_product_backward(&handle, session.engine(), dx.get(), w.get(), dy.get(),
                                      forward, attr),
        "the descriptor of inner_product's backward", context);
  const Descriptor desc(handle);
  return {
      session,
      desc,
      {{DNNL_ARG_DIFF_DST, dy.get()}, {DNNL_ARG_WEIGHTS, w.get()}, {DNNL_ARG_DIFF_SRC, dx.get()}},
      context};
}

}  // namespace shardwise::detail::onednn
