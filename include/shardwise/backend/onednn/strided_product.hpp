#pragma once
// Products of matrices whose rows lie apart, with sums of float.

#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <concepts>
#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/backend/onednn/attributes.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/handle.hpp"
#include "shardwise/backend/onednn/library.hpp"
#include "shardwise/backend/onednn/matrix.hpp"
#include "shardwise/backend/onednn/session.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::onednn {

/// A row-major matrix whose rows begin `stride` elements apart.
template <class T>
struct StridedRows {
  T* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;

  T* row(std::size_t r) const { return data + r * stride; }
  StridedRows neighbours(Interval of) const { return {row(of.offset), of.size, columns, stride}; }
  StridedRows neighbouring_columns(Interval of) const {
    return {data + of.offset, rows, of.size, stride};
  }
  template <std::same_as<const T> U>
  operator StridedRows<U>() const {
    return {data, rows, columns, stride};
  }
};

/// Whether a product reads a matrix or its transpose.
enum class Reads : char { plain = 'N', transpose = 'T' };

/// c = a b, or c += a b, by this reading of a.
struct StridedForm {
  Reads a = Reads::plain;
  Write write = Write::replace;

  bool operator==(const StridedForm&) const = default;

  template <class T>
  ErrorContext context(StridedRows<const T> from, StridedRows<float> to) const {
    const std::size_t inner = a == Reads::plain ? from.columns : from.rows;
    return {"attention", dtype_v<T>, to.rows, inner, to.columns};
  }
};

/// The product of a form in bf16, of any extents but zero. Blocks of attention have many extents,
/// so the primitive is told them in each call. That costs 0.5 µs, 2 % of a product of 64 x 64 x
/// 512, and no cache fills with extents that never come again.
class StridedProduct {
 public:
  StridedProduct(Session& session, const StridedForm& form) : form_(form) {
    constexpr std::size_t open = DNNL_RUNTIME_SIZE_VAL;
    const StridedRows<const bf16> factor{nullptr, open, open, open};
    const StridedRows<float> sums{nullptr, open, open, open};
    const ErrorContext context{.product = "attention", .dtype = Dtype::bfloat16};
    dnnl_primitive_desc_t desc = nullptr;
    check(create_matmul(
              &desc, session.engine(), layout(form.a, factor, context).get(),
              layout(Reads::plain, factor, context).get(), nullptr,
              layout_of_sums(sums, context).get(),
              attributes(form.write, Activation::none, context, dnnl_scratchpad_mode_library)),
          "the descriptor of matmul", context);
    const Descriptor owner(desc);
    dnnl_primitive_t primitive = nullptr;
    check(dnnl_primitive_create(&primitive, desc), "dnnl_primitive_create", context);
    primitive_.reset(primitive);
  }

  void run(Session& session, StridedRows<const bf16> a, StridedRows<const bf16> b,
           StridedRows<float> c) const {
    const ErrorContext context = form_.context(a, c);
    const Memory of_a = memory(session, layout(form_.a, a, context), a.data, context);
    const Memory of_b = memory(session, layout(Reads::plain, b, context), b.data, context);
    const Memory of_c = memory(session, layout_of_sums(c, context), c.data, context);
    const std::array<dnnl_exec_arg_t, 3> arguments{
        {{DNNL_ARG_SRC, of_a.get()}, {DNNL_ARG_WEIGHTS, of_b.get()}, {DNNL_ARG_DST, of_c.get()}}};
    check(dnnl_primitive_execute(primitive_.get(), session.stream(),
                                 static_cast<int>(arguments.size()), arguments.data()),
          "dnnl_primitive_execute", context);
    check(dnnl_stream_wait(session.stream()), "dnnl_stream_wait", context);
  }

 private:
  static MatrixDesc layout(Reads reads, StridedRows<const bf16> m, const ErrorContext& context) {
    return reads == Reads::plain ? strided(m.rows, m.columns, as_dim(m.stride), 1, context)
                                 : strided(m.columns, m.rows, 1, as_dim(m.stride), context);
  }
  static MatrixDesc layout_of_sums(StridedRows<float> m, ErrorContext context) {
    context.dtype = Dtype::float32;
    return strided(m.rows, m.columns, as_dim(m.stride), 1, context);
  }
  /// The library takes inputs and outputs as void*, and writes only the output.
  static Memory memory(Session& session, const MatrixDesc& desc, const void* data,
                       const ErrorContext& context) {
    dnnl_memory_t made = nullptr;
    check(dnnl_memory_create(&made, desc.get(), session.engine(), const_cast<void*>(data)),
          "dnnl_memory_create", context);
    return Memory(made);
  }

  StridedForm form_;
  PrimitiveHandle primitive_;
};

/// The products of all forms.
class StridedProducts {
 public:
  /// The product of a form. No extent is zero.
  void run(Session& session, const StridedForm& form, StridedRows<const bf16> a,
           StridedRows<const bf16> b, StridedRows<float> c) {
    products_.get(form, [&] { return StridedProduct(session, form); }).run(session, a, b, c);
  }
  void run(Session&, const StridedForm& form, StridedRows<const float> a,
           StridedRows<const float> b, StridedRows<float> c) {
    const ErrorContext context = form.context(a, c);
    check(dnnl_sgemm(static_cast<char>(form.a), 'N', as_dim(c.rows), as_dim(c.columns),
                     as_dim(context.in), 1.0F, a.data, as_dim(a.stride), b.data, as_dim(b.stride),
                     form.write == Write::add ? 1.0F : 0.0F, c.data, as_dim(c.stride)),
          "dnnl_sgemm", context);
  }

 private:
  PlanCache<StridedForm, StridedProduct> products_;
};

}  // namespace shardwise::detail::onednn
