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

#include "kernels/linear_product.hpp"
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

inline dnnl_memory_desc_t tagged(std::vector<dnnl_dim_t> dims, dnnl_format_tag_t tag,
                                 dnnl_data_type_t type = dnnl_f32) {
  dnnl_memory_desc_t desc;
  must(dnnl_memory_desc_init_by_tag(&desc, static_cast<int>(dims.size()), dims.data(), type, tag),
       "tag");
  return desc;
}

using Attributes = std::unique_ptr<dnnl_primitive_attr, decltype(&dnnl_primitive_attr_destroy)>;

/// User scratch memory and, if asked for, a fused ReLU.
inline Attributes attributes(bool relu = false) {
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
  return {attr, dnnl_primitive_attr_destroy};
}

inline dnnl_primitive_desc_t describe(Library& library, const_dnnl_op_desc_t op, bool relu = false,
                                      const_dnnl_primitive_desc_t hint = nullptr) {
  dnnl_primitive_desc_t desc = nullptr;
  must(dnnl_primitive_desc_create(&desc, op, attributes(relu).get(), library.engine, hint),
       "descriptor");
  return desc;
}

/// Copies a tensor into another layout.
inline Call reorder(Library& library, const dnnl_memory_desc_t& from, void* source,
                    const dnnl_memory_desc_t& to, void* target) {
  dnnl_primitive_desc_t desc = nullptr;
  must(dnnl_reorder_primitive_desc_create(&desc, &from, library.engine, &to, library.engine,
                                          attributes().get()),
       "reorder");
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

/// A matrix [rows, columns] and whether it lies as its transpose, row-major.
struct Matrix {
  void* data;
  dnnl_dim_t rows, columns;
  bool transposed = false;

  dnnl_memory_desc_t desc(dnnl_data_type_t type) const {
    dnnl_memory_desc_t desc;
    const dnnl_dims_t dims = {rows, columns};
    const dnnl_dims_t strides = {transposed ? 1 : columns, transposed ? rows : 1};
    must(dnnl_memory_desc_init_by_strides(&desc, 2, dims, type, strides), "strides");
    return desc;
  }
};

/// c = a b (+ bias, ReLU), all of one type.
inline Product matmul(Library& library, const Matrix& a, const Matrix& b, const Matrix& c,
                      void* bias = nullptr, bool relu = false, Weights weights = Weights::plain,
                      dnnl_data_type_t type = dnnl_f32) {
  const dnnl_memory_desc_t a_desc = a.desc(type), lying = b.desc(type), c_desc = c.desc(type);
  const dnnl_memory_desc_t wanted =
      weights == Weights::plain ? lying : tagged({b.rows, b.columns}, dnnl_format_tag_any, type);
  const dnnl_memory_desc_t bias_desc = tagged({1, c.columns}, dnnl_ab, type);
  dnnl_matmul_desc_t op;
  must(
      dnnl_matmul_desc_init(&op, &a_desc, &wanted, bias == nullptr ? nullptr : &bias_desc, &c_desc),
      "matmul");
  Call product(library, describe(library, &op, relu));
  product.bind(DNNL_ARG_SRC, a_desc, a.data);
  product.bind(DNNL_ARG_DST, c_desc, c.data);
  if (bias != nullptr) product.bind(DNNL_ARG_BIAS, bias_desc, bias);

  Product result;
  if (weights == Weights::plain) {
    product.bind(DNNL_ARG_WEIGHTS, lying, b.data);
  } else {
    const dnnl_memory_desc_t packed =
        *dnnl_primitive_desc_query_md(product.desc(), dnnl_query_weights_md, 0);
    // The copy belongs to `product`, which outlives every use of it here.
    void* copy = product.bind(DNNL_ARG_WEIGHTS, packed);
    Call pack = reorder(library, lying, b.data, packed, copy);
    pack();
    if (weights == Weights::packed_each_time) result.calls.push_back(std::move(pack));
  }
  result.calls.push_back(std::move(product));
  return result;
}

using Pass = bench::LinearProduct;

/// oneDNN's layer of x [rows, in], w [out, in] and y [rows, out], plain matrices: y = x wᵀ + b
/// (ReLU); dx = dy w; or dw = dyᵀ x and db, the column sums of dy. Backward has gradients in the
/// places of what they are of, where the layer reads or writes them.
struct InnerProduct {
  dnnl_dim_t rows, in, out;
  void *x, *w, *b, *y;

  Product product(Library& library, Pass pass, bool relu = false,
                  dnnl_data_type_t type = dnnl_f32) const {
    const dnnl_memory_desc_t x_desc = Matrix{x, rows, in}.desc(type);
    const dnnl_memory_desc_t w_desc = Matrix{w, out, in}.desc(type);
    const dnnl_memory_desc_t y_desc = Matrix{y, rows, out}.desc(type);
    const dnnl_memory_desc_t b_desc = tagged({out}, dnnl_a, type);
    const bool is_forward = pass == Pass::forward, of_weight = pass == Pass::backward_weight;
    const bool has_bias = pass != Pass::backward_input;
    dnnl_inner_product_desc_t op;
    must(dnnl_inner_product_forward_desc_init(
             &op, is_forward ? dnnl_forward_inference : dnnl_forward_training, &x_desc, &w_desc,
             has_bias ? &b_desc : nullptr, &y_desc),
         "inner product");
    dnnl_primitive_desc_t desc = describe(library, &op, relu);
    if (!is_forward) {
      must(of_weight ? dnnl_inner_product_backward_weights_desc_init(&op, &x_desc, &w_desc, &b_desc,
                                                                     &y_desc)
                     : dnnl_inner_product_backward_data_desc_init(&op, &x_desc, &w_desc, &y_desc),
           "inner product backward");
      const dnnl_primitive_desc_t hint = std::exchange(desc, describe(library, &op, false, desc));
      dnnl_primitive_desc_destroy(hint);
    }
    Call call(library, desc);
    call.bind(has_bias ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, x_desc, x);
    call.bind(of_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, w_desc, w);
    if (has_bias) call.bind(of_weight ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, b_desc, b);
    call.bind(is_forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y_desc, y);
    Product result;
    result.calls.push_back(std::move(call));
    return result;
  }
};

}  // namespace by_hand
