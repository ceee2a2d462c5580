#pragma once
// oneDNN called as directly as its C interface allows: everything is bound beforehand, and running
// is one dnnl_primitive_execute. What the library's own kernels are measured against.

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/core/dtype.hpp"

namespace by_hand {

inline void must(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  throw std::runtime_error(std::string("by hand: ") + what + ": " + dnnl_status2str(status));
}

struct Library {
  dnnl_engine_t engine = nullptr;
  dnnl_stream_t stream = nullptr;

  Library() {
    must(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    must(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
  }
};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

inline std::string instruction_set() { return dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa()); }

/// Whether this processor can multiply bf16 with oneDNN.
inline bool multiplies_bf16() {
  constexpr int needed = dnnl_cpu_isa_avx512_core;
  return (dnnl_get_effective_cpu_isa() & needed) == needed;
}

/// What oneDNN calls T.
template <class T>
constexpr dnnl_data_type_t type_of = std::is_same_v<T, shardwise::bf16> ? dnnl_bf16 : dnnl_f32;

/// A primitive with its arguments bound. Moves, and destroys what it made.
class Call {
 public:
  Call(Library& library, dnnl_primitive_desc_t desc) : library_(&library), desc_(desc) {
    must(dnnl_primitive_create(&primitive_, desc), "primitive");
    bind(DNNL_ARG_SCRATCHPAD, *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0));
  }
  Call(Call&& other) noexcept
      : library_(other.library_),
        desc_(std::exchange(other.desc_, nullptr)),
        primitive_(std::exchange(other.primitive_, nullptr)),
        args_(std::move(other.args_)),
        owned_(std::move(other.owned_)) {
    other.args_.clear();
  }
  Call& operator=(Call&&) = delete;
  ~Call() {
    for (const dnnl_exec_arg_t& arg : args_) dnnl_memory_destroy(arg.memory);
    if (primitive_ != nullptr) dnnl_primitive_destroy(primitive_);
    if (desc_ != nullptr) dnnl_primitive_desc_destroy(desc_);
  }

  /// Binds `data`, or memory of its own. Returns the address.
  void* bind(int kind, const dnnl_memory_desc_t& desc, void* data = nullptr) {
    if (data == nullptr) {
      data = std::aligned_alloc(64, (dnnl_memory_desc_get_size(&desc) + 64) / 64 * 64);
      owned_.emplace_back(data);
    }
    dnnl_memory_t memory = nullptr;
    must(dnnl_memory_create(&memory, &desc, library_->engine, data), "memory");
    args_.push_back({kind, memory});
    return data;
  }

  void operator()() const {
    dnnl_primitive_execute(primitive_, library_->stream, static_cast<int>(args_.size()),
                           args_.data());
    dnnl_stream_wait(library_->stream);
  }

  dnnl_primitive_desc_t desc() const { return desc_; }

 private:
  Library* library_;
  dnnl_primitive_desc_t desc_;
  dnnl_primitive_t primitive_ = nullptr;
  std::vector<dnnl_exec_arg_t> args_;
  std::vector<std::unique_ptr<void, FreeMemory>> owned_;
};

inline dnnl_memory_desc_t strided(dnnl_dim_t rows, dnnl_dim_t columns, dnnl_dim_t row_stride,
                                  dnnl_dim_t column_stride, dnnl_data_type_t type = dnnl_f32) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t dims = {rows, columns};
  const dnnl_dims_t strides = {row_stride, column_stride};
  must(dnnl_memory_desc_init_by_strides(&desc, 2, dims, type, strides), "strides");
  return desc;
}

inline dnnl_memory_desc_t plain(dnnl_dim_t rows, dnnl_dim_t columns,
                                dnnl_data_type_t type = dnnl_f32) {
  return strided(rows, columns, columns, 1, type);
}

inline dnnl_memory_desc_t tagged(std::vector<dnnl_dim_t> dims, dnnl_format_tag_t tag,
                                 dnnl_data_type_t type = dnnl_f32) {
  dnnl_memory_desc_t desc;
  must(dnnl_memory_desc_init_by_tag(&desc, static_cast<int>(dims.size()), dims.data(), type, tag),
       "tag");
  return desc;
}

/// A descriptor with user scratch memory and, if asked for, a fused ReLU.
inline dnnl_primitive_desc_t describe(Library& library, const_dnnl_op_desc_t op, bool relu = false,
                                      dnnl_primitive_desc_t hint = nullptr) {
  dnnl_primitive_attr_t attr = nullptr;
  must(dnnl_primitive_attr_create(&attr), "attributes");
  must(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "scratch");
  if (relu) {
    dnnl_post_ops_t post_ops = nullptr;
    must(dnnl_post_ops_create(&post_ops), "post-ops");
    must(dnnl_post_ops_append_eltwise(post_ops, 1, dnnl_eltwise_relu, 0, 0), "relu");
    must(dnnl_primitive_attr_set_post_ops(attr, post_ops), "post-ops");
    dnnl_post_ops_destroy(post_ops);
  }
  dnnl_primitive_desc_t desc = nullptr;
  must(dnnl_primitive_desc_create(&desc, op, attr, library.engine, hint), "descriptor");
  dnnl_primitive_attr_destroy(attr);
  return desc;
}

/// Copies a tensor into another layout.
inline Call reorder(Library& library, const dnnl_memory_desc_t& from, void* source,
                    const dnnl_memory_desc_t& to, void* target) {
  dnnl_primitive_attr_t attr = nullptr;
  must(dnnl_primitive_attr_create(&attr), "attributes");
  must(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "scratch");
  dnnl_primitive_desc_t desc = nullptr;
  must(dnnl_reorder_primitive_desc_create(&desc, &from, library.engine, &to, library.engine, attr),
       "reorder");
  dnnl_primitive_attr_destroy(attr);
  Call call(library, desc);
  call.bind(DNNL_ARG_FROM, from, source);
  call.bind(DNNL_ARG_TO, to, target);
  return call;
}

/// How a weight reaches a product: as it lies, packed beforehand, or packed in every call.
enum class Weights { plain, packed, packed_each_time };

/// A product, with the copy of its weight in front where there is one.
struct Product {
  std::vector<Call> calls;

  void operator()() const {
    for (const Call& call : calls) call();
  }
};

/// The product that one call is.
inline Product product_of(Call call) {
  Product result;
  result.calls.push_back(std::move(call));
  return result;
}

/// c[m, n] = a[m, k] b (+ bias, ReLU), all of one type; `transposed`: b lies as [n, k].
inline Product matmul(Library& library, dnnl_dim_t m, dnnl_dim_t k, dnnl_dim_t n, void* a, void* b,
                      bool transposed, void* c, void* bias, bool relu, Weights weights,
                      dnnl_data_type_t type = dnnl_f32) {
  const dnnl_memory_desc_t a_desc = plain(m, k, type);
  const dnnl_memory_desc_t lying = transposed ? strided(k, n, 1, k, type) : plain(k, n, type);
  const dnnl_memory_desc_t wanted =
      weights == Weights::plain ? lying : tagged({k, n}, dnnl_format_tag_any, type);
  const dnnl_memory_desc_t c_desc = plain(m, n, type);
  const dnnl_memory_desc_t bias_desc = plain(1, n, type);
  dnnl_matmul_desc_t op;
  must(
      dnnl_matmul_desc_init(&op, &a_desc, &wanted, bias == nullptr ? nullptr : &bias_desc, &c_desc),
      "matmul");
  Call product(library, describe(library, &op, relu));
  product.bind(DNNL_ARG_SRC, a_desc, a);
  product.bind(DNNL_ARG_DST, c_desc, c);
  if (bias != nullptr) product.bind(DNNL_ARG_BIAS, bias_desc, bias);

  if (weights == Weights::plain) {
    product.bind(DNNL_ARG_WEIGHTS, lying, b);
    return product_of(std::move(product));
  }
  const dnnl_memory_desc_t packed =
      *dnnl_primitive_desc_query_md(product.desc(), dnnl_query_weights_md, 0);
  void* copy = product.bind(DNNL_ARG_WEIGHTS, packed);
  Call pack = reorder(library, lying, b, packed, copy);
  pack();
  Product result;
  if (weights == Weights::packed_each_time) result.calls.push_back(std::move(pack));
  result.calls.push_back(std::move(product));
  // The copy belongs to `product`, which outlives every use of it here.
  return result;
}

/// dw[out, in] = dy[rows, out]^T x[rows, in].
inline Product transposed_matmul(Library& library, dnnl_dim_t rows, dnnl_dim_t in, dnnl_dim_t out,
                                 void* x, void* dy, void* dw, dnnl_data_type_t type = dnnl_f32) {
  const dnnl_memory_desc_t dy_desc = strided(out, rows, 1, out, type);
  const dnnl_memory_desc_t x_desc = plain(rows, in, type);
  const dnnl_memory_desc_t dw_desc = plain(out, in, type);
  dnnl_matmul_desc_t op;
  must(dnnl_matmul_desc_init(&op, &dy_desc, &x_desc, nullptr, &dw_desc), "matmul");
  Call call(library, describe(library, &op));
  call.bind(DNNL_ARG_SRC, dy_desc, dy);
  call.bind(DNNL_ARG_WEIGHTS, x_desc, x);
  call.bind(DNNL_ARG_DST, dw_desc, dw);
  return product_of(std::move(call));
}

/// y[rows, out] = x w^T + bias (ReLU) as oneDNN's layer, plain weights.
inline Product inner_product(Library& library, dnnl_dim_t rows, dnnl_dim_t in, dnnl_dim_t out,
                             void* x, void* w, void* y, void* bias, bool relu,
                             dnnl_data_type_t type = dnnl_f32) {
  const dnnl_memory_desc_t x_desc = plain(rows, in, type);
  const dnnl_memory_desc_t w_desc = plain(out, in, type);
  const dnnl_memory_desc_t y_desc = plain(rows, out, type);
  const dnnl_memory_desc_t bias_desc = tagged({out}, dnnl_a, type);
  dnnl_inner_product_desc_t op;
  must(dnnl_inner_product_forward_desc_init(&op, dnnl_forward_inference, &x_desc, &w_desc,
                                            &bias_desc, &y_desc),
       "inner product");
  Call call(library, describe(library, &op, relu));
  call.bind(DNNL_ARG_SRC, x_desc, x);
  call.bind(DNNL_ARG_WEIGHTS, w_desc, w);
  call.bind(DNNL_ARG_BIAS, bias_desc, bias);
  call.bind(DNNL_ARG_DST, y_desc, y);
  return product_of(std::move(call));
}

/// dw[out, in] = dy^T x and db = column sums of dy, or dx[rows, in] = dy w: oneDNN's layer
/// backward, plain matrices. `dw` null: the second.
inline Product inner_product_backward(Library& library, dnnl_dim_t rows, dnnl_dim_t in,
                                      dnnl_dim_t out, void* x_or_dx, void* w, void* dy, void* dw,
                                      void* db, dnnl_data_type_t type = dnnl_f32) {
  const dnnl_memory_desc_t x_desc = plain(rows, in, type);
  const dnnl_memory_desc_t w_desc = plain(out, in, type);
  const dnnl_memory_desc_t y_desc = plain(rows, out, type);
  const dnnl_memory_desc_t bias_desc = tagged({out}, dnnl_a, type);
  dnnl_inner_product_desc_t op;
  must(dnnl_inner_product_forward_desc_init(&op, dnnl_forward_training, &x_desc, &w_desc,
                                            dw == nullptr ? nullptr : &bias_desc, &y_desc),
       "inner product");
  const dnnl_primitive_desc_t hint = describe(library, &op);
  if (dw == nullptr) {
    must(dnnl_inner_product_backward_data_desc_init(&op, &x_desc, &w_desc, &y_desc), "backward");
  } else {
    must(dnnl_inner_product_backward_weights_desc_init(&op, &x_desc, &w_desc, &bias_desc, &y_desc),
         "backward");
  }
  Call call(library, describe(library, &op, false, hint));
  dnnl_primitive_desc_destroy(hint);
  call.bind(DNNL_ARG_DIFF_DST, y_desc, dy);
  if (dw == nullptr) {
    call.bind(DNNL_ARG_WEIGHTS, w_desc, w);
    call.bind(DNNL_ARG_DIFF_SRC, x_desc, x_or_dx);
  } else {
    call.bind(DNNL_ARG_SRC, x_desc, x_or_dx);
    call.bind(DNNL_ARG_DIFF_WEIGHTS, w_desc, dw);
    call.bind(DNNL_ARG_DIFF_BIAS, bias_desc, db);
  }
  return product_of(std::move(call));
}

}  // namespace by_hand
