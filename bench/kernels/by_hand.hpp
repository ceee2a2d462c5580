#pragma once
// oneDNN's primitives called by hand: everything is bound beforehand, and running is one
// dnnl_primitive_execute. What the library's own kernels are measured against.

#include <oneapi/dnnl/dnnl_debug.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/core/dtype.hpp"

namespace by_hand {

using Desc = dnnl::memory::desc;
using Dim = dnnl::memory::dim;
using Tag = dnnl::memory::format_tag;

struct Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

inline std::string instruction_set() { return dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa()); }

/// Whether this processor can multiply bf16 with oneDNN.
inline bool multiplies_bf16() {
  constexpr int needed = dnnl_cpu_isa_avx512_core;
  return (dnnl_get_effective_cpu_isa() & needed) == needed;
}

/// What oneDNN calls T.
template <class T>
constexpr auto type_of = std::is_same_v<T, shardwise::bf16> ? dnnl::memory::data_type::bf16
                                                            : dnnl::memory::data_type::f32;

/// A primitive with its arguments bound.
class Call {
 public:
  Call(const Library& library, const dnnl::primitive_desc_base& desc)
      : stream_(library.stream), primitive_(desc.get()) {
    bind(DNNL_ARG_SCRATCHPAD, {desc.query_md(dnnl::query::scratchpad_md), library.engine});
  }

  void bind(int kind, const dnnl::memory& memory) {
    memories_.push_back(memory);
    args_.push_back({kind, memory.get()});
  }

  void operator()() const {
    dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(args_.size()),
                           args_.data());
    dnnl_stream_wait(stream_.get());
  }

 private:
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> args_;
};

/// User scratch memory and, if asked for, a fused ReLU.
inline dnnl::primitive_attr attributes(bool relu = false) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) {
    dnnl::post_ops post_ops;
    post_ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
    attr.set_post_ops(post_ops);
  }
  return attr;
}

/// Copies a tensor into another layout.
inline Call reorder(const Library& library, const dnnl::memory& from, const dnnl::memory& to) {
  Call call(library, dnnl::reorder::primitive_desc(library.engine, from.get_desc(), library.engine,
                                                   to.get_desc(), attributes()));
  call.bind(DNNL_ARG_FROM, from);
  call.bind(DNNL_ARG_TO, to);
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
template <class T>
struct Matrix {
  T* data;
  Dim rows, columns;
  bool transposed = false;

  Desc desc() const {
    using Strides = dnnl::memory::dims;
    return {{rows, columns}, type_of<T>, transposed ? Strides{1, rows} : Strides{columns, 1}};
  }
  dnnl::memory in(const Library& library) const { return {desc(), library.engine, data}; }
};

/// c = a b (+ bias, ReLU).
template <class T>
Product matmul(const Library& library, const Matrix<T>& a, const Matrix<T>& b, const Matrix<T>& c,
               T* bias = nullptr, bool relu = false, Weights weights = Weights::plain) {
  const bool is_plain = weights == Weights::plain;
  const Desc wanted = is_plain ? b.desc() : Desc({b.rows, b.columns}, type_of<T>, Tag::any);
  const Desc of_bias = bias == nullptr ? Desc() : Desc({1, c.columns}, type_of<T>, Tag::ab);
  const dnnl::matmul::primitive_desc desc({a.desc(), wanted, of_bias, c.desc()}, attributes(relu),
                                          library.engine);
  Call product(library, desc);
  product.bind(DNNL_ARG_SRC, a.in(library));
  product.bind(DNNL_ARG_DST, c.in(library));
  if (bias != nullptr) product.bind(DNNL_ARG_BIAS, {of_bias, library.engine, bias});
  Product result;
  if (is_plain) {
    product.bind(DNNL_ARG_WEIGHTS, b.in(library));
  } else {
    const dnnl::memory packed(desc.weights_desc(), library.engine);
    product.bind(DNNL_ARG_WEIGHTS, packed);
    const Call pack = reorder(library, b.in(library), packed);
    pack();
    if (weights == Weights::packed_each_time) result.calls.push_back(pack);
  }
  result.calls.push_back(product);
  return result;
}

/// The products of a layer: forward with bias and activation; backward_weight gives the gradient of
/// the bias too.
enum class Pass { forward, backward_input, backward_weight };

/// A linear layer of x [rows, in], w [out, in] and y [rows, out], row-major: y = x wᵀ + b (ReLU);
/// dx = dy w; or dw = dyᵀ x and db, the column sums of dy. Backward has gradients in the places of
/// what they are of, where the layer reads or writes them.
template <class T>
struct Linear {
  Dim rows, in, out;
  T *x, *w, *b, *y;

  /// By the product of matrices, which gives no db.
  Product matmul(const Library& library, Pass pass, bool relu = false,
                 Weights weights = Weights::plain) const {
    if (pass == Pass::forward)
      return by_hand::matmul<T>(library, {x, rows, in}, {w, in, out, true}, {y, rows, out}, b, relu,
                                weights);
    if (pass == Pass::backward_input)
      return by_hand::matmul<T>(library, {y, rows, out}, {w, out, in}, {x, rows, in}, nullptr,
                                false, weights);
    return by_hand::matmul<T>(library, {y, out, rows, true}, {x, rows, in}, {w, out, in});
  }

  /// By oneDNN's layer.
  Product inner_product(const Library& library, Pass pass, bool relu = false) const {
    const bool is_forward = pass == Pass::forward, of_weight = pass == Pass::backward_weight;
    const Matrix<T> of_x{x, rows, in}, of_w{w, out, in}, of_y{y, rows, out};
    Call call(library, described(library, pass, relu));
    call.bind(pass == Pass::backward_input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, of_x.in(library));
    call.bind(of_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, of_w.in(library));
    if (pass != Pass::backward_input)
      call.bind(of_weight ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, {of_b(), library.engine, b});
    call.bind(is_forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, of_y.in(library));
    return {{call}};
  }

 private:
  Desc of_b() const { return {{out}, type_of<T>, Tag::a}; }

  dnnl::primitive_desc_base described(const Library& library, Pass pass, bool relu) const {
    const Desc of_x = Matrix<T>{x, rows, in}.desc(), of_w = Matrix<T>{w, out, in}.desc(),
               of_y = Matrix<T>{y, rows, out}.desc();
    const auto kind = pass == Pass::forward ? dnnl::prop_kind::forward_inference
                                            : dnnl::prop_kind::forward_training;
    const dnnl::inner_product_forward::primitive_desc forward({kind, of_x, of_w, of_b(), of_y},
                                                              attributes(relu), library.engine);
    if (pass == Pass::forward) return forward;
    if (pass == Pass::backward_input)
      return dnnl::inner_product_backward_data::primitive_desc({of_x, of_w, of_y}, attributes(),
                                                               library.engine, forward);
    return dnnl::inner_product_backward_weights::primitive_desc(
        {of_x, of_w, of_b(), of_y}, attributes(), library.engine, forward);
  }
};

}  // namespace by_hand
