#pragma once
// The plan of one call of a convolution: the primitive, and the reorders between the caller's
// layouts and those that it is fastest in.

#include <oneapi/dnnl/dnnl.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/onednn/attributes.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/convolution_geometry.hpp"
#include "shardwise/backend/onednn/library.hpp"
#include "shardwise/backend/onednn/matrix.hpp"
#include "shardwise/backend/onednn/primitive.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/reorder.hpp"
#include "shardwise/backend/onednn/scratch.hpp"
#include "shardwise/backend/onednn/session.hpp"

namespace shardwise::detail::onednn {

/// The dtype in which the library multiplies: bf16 if the processor supports it and the library is
/// correct; else float, and the reorders convert.
inline dnnl_data_type_t product_dtype(const ConvolutionGeometry& g, const ErrorContext& context) {
  return context.dtype == Dtype::bfloat16 && multiplies_bf16() && g.bf16_is_right ? dnnl_bf16
                                                                                  : dnnl_f32;
}

/// A tensor of the caller that the primitive reads in another layout: copied, unless the layouts
/// are equal.
class Operand {
 public:
  Operand(Session& session, const TensorShape& shape, ConstDesc chosen, const ErrorContext& context)
      : bytes_(dnnl_memory_desc_get_size(chosen)) {
    const MemoryDesc plain = shape.plain(library_dtype(context.dtype), context);
    if (dnnl_memory_desc_equal(plain.get(), chosen) == 0)
      reorder_.emplace(reorder(session, plain.get(), chosen, Write::replace, context));
  }

  /// The tensor, or its copy in `copy`.
  const void* read(Session& session, const void* data, Scratch& copy) {
    if (!reorder_) return data;
    void* const there = copy.reserve(bytes_);
    reorder_->run(session, {data, there});
    return there;
  }

 private:
  std::size_t bytes_;
  std::optional<Primitive> reorder_;
};

/// A weight that the primitive reads, whose copy is kept in the plan until it changes.
class WeightOperand {
 public:
  WeightOperand(Session& session, const TensorShape& shape, ConstDesc chosen,
                const ErrorContext& context)
      : weight_(session, shape, chosen, context) {}

  const void* read(Session& session, const void* data, std::uint64_t version) {
    if (data == data_ && version == version_) return here_;
    here_ = weight_.read(session, data, copy_);
    data_ = data;
    version_ = version;
    return here_;
  }

 private:
  Operand weight_;
  Scratch copy_;
  const void* here_ = nullptr;
  const void* data_ = nullptr;
  std::uint64_t version_ = 0;
};

/// A tensor of the caller that the primitive writes, or adds to, in another layout.
class Result {
 public:
  Result(Session& session, const TensorShape& shape, ConstDesc chosen, Write write,
         const ErrorContext& context)
      : bytes_(dnnl_memory_desc_get_size(chosen)) {
    const MemoryDesc plain = shape.plain(library_dtype(context.dtype), context);
    if (write == Write::replace && dnnl_memory_desc_equal(plain.get(), chosen) != 0) return;
    reorder_.emplace(reorder(session, chosen, plain.get(), write, context));
  }

  /// The memory that the primitive writes: the tensor's, or `copy`.
  void* memory(void* data, Scratch& copy) { return reorder_ ? copy.reserve(bytes_) : data; }

  /// Call this after the primitive has written.
  void finish(Session& session, void* data, Scratch& copy) {
    if (reorder_) reorder_->run(session, {copy.reserve(bytes_), data});
  }

 private:
  std::size_t bytes_;
  std::optional<Primitive> reorder_;
};

inline ConstDesc queried(const Descriptor& desc, dnnl_query_t what) {
  return dnnl_primitive_desc_query_md(desc.get(), what, 0);
}

/// The layout in which a primitive takes and gives images: the caller's, or the one that the
/// library chooses, which takes copies there and back.
enum class Images : bool { as_they_lie, as_the_library_likes };

/// A product of a matrix with images must save more time than the copies take. With ResNet-50's
/// shapes and 4 images on AVX-512 (bench/kernels/convolution.cpp):
/// - float: forward and the input's gradient are faster without copies by up to 40 % from 14 x 14
///   elements on, and slower by up to 40 % at 7 x 7. The weight's gradient is faster without by 5
///   to 80 % at any extent: it would need two, and for one tap the library takes long to copy its
///   result to the plain layout.
/// - bf16: forward is faster without copies by 3 to 110 % from 14 x 14 elements on, and slower by
///   50 % at 7 x 7. Gradients are faster with copies, and so is all on a processor with tiles.
inline Images best_images(ConvolutionProduct product, const ConvolutionGeometry& g,
                          const ErrorContext& context) {
  if (!g.multiplies_images) return Images::as_the_library_likes;
  const bool is_large = g.plane > 128;
  bool as_they_lie = false;
  if (context.dtype == Dtype::float32)
    as_they_lie = is_large || product == ConvolutionProduct::backward_weight;
  else if (product_dtype(g, context) == dnnl_bf16)
    as_they_lie = is_large && product == ConvolutionProduct::forward && !multiplies_tiles();
  return as_they_lie ? Images::as_they_lie : Images::as_the_library_likes;
}

/// The tensors of a convolution, with a weight in the layout that the library chooses.
class OpenTensors {
 public:
  OpenTensors(const ConvolutionGeometry& g, Images images, bool with_bias,
              const ErrorContext& context)
      : OpenTensors(g, images, with_bias, product_dtype(g, context), context) {}

  /// With weight and bias in their own dtype.
  OpenTensors(const ConvolutionGeometry& g, Images images, bool with_bias,
              dnnl_data_type_t weight_dtype, const ErrorContext& context)
      : x_(offered(g.x, product_dtype(g, context), images, context)),
        w_(g.w.any(weight_dtype, context)),
        bias_(g.bias.plain(weight_dtype, context)),
        y_(offered(g.y, product_dtype(g, context), images, context)),
        with_bias_(with_bias) {}

  ConvolutionDescs get() const {
    return {x_.get(), w_.get(), with_bias_ ? bias_.get() : nullptr, y_.get()};
  }

 private:
  static MemoryDesc offered(const TensorShape& shape, dnnl_data_type_t dtype, Images images,
                            const ErrorContext& context) {
    return images == Images::as_they_lie ? shape.plain(dtype, context) : shape.any(dtype, context);
  }

  MemoryDesc x_, w_, bias_, y_;
  bool with_bias_;
};

/// The forward product, which the library also needs to plan a gradient.
inline Descriptor describe_forward(Session& session, const ConvolutionGeometry& g,
                                   const OpenTensors& tensors, Activation activation,
                                   const ErrorContext& context) {
  dnnl_primitive_desc_t desc = nullptr;
  check(create_convolution(&desc, session.engine(), tensors.get(), g.steps,
                           attributes(Write::replace, activation, context)),
        "the descriptor of convolution", context);
  return Descriptor(desc);
}

/// y = activation(x ⋆ w + bias).
class ForwardConvolution {
 public:
  ForwardConvolution(Session& session, const ConvolutionGeometry& g, bool with_bias,
                     Activation activation, const ErrorContext& context)
      : ForwardConvolution(
            session, g, with_bias, context,
            describe_forward(
                session, g,
                {g, best_images(ConvolutionProduct::forward, g, context), with_bias, context},
                activation, context)) {}

  void run(Session& session, const void* x, const void* w, std::uint64_t version, const void* bias,
           void* y) {
    auto& [x_copy, y_copy] = session.images();
    const void* x_here = x_.read(session, x, x_copy);
    const void* w_here = w_.read(session, w, version);
    void* const y_here = y_.memory(y, y_copy);
    if (bias_) {
      product_.run(session, {x_here, w_here, y_here, bias_->read(session, bias, bias_copy_)});
    } else {
      product_.run(session, {x_here, w_here, y_here});
    }
    y_.finish(session, y, y_copy);
  }

 private:
  ForwardConvolution(Session& session, const ConvolutionGeometry& g, bool with_bias,
                     const ErrorContext& context, const Descriptor& desc)
      : x_(session, g.x, queried(desc, dnnl_query_src_md), context),
        w_(session, g.w, queried(desc, dnnl_query_weights_md), context),
        y_(session, g.y, queried(desc, dnnl_query_dst_md), Write::replace, context),
        product_(product(session, g, with_bias, context, desc)) {
    if (!with_bias) return;
    const MemoryDesc bias = g.bias.plain(product_dtype(g, context), context);
    bias_.emplace(session, g.bias, bias.get(), context);
  }

  static Primitive product(Session& session, const ConvolutionGeometry& g, bool with_bias,
                           const ErrorContext& context, const Descriptor& desc) {
    const Argument x{DNNL_ARG_SRC, queried(desc, dnnl_query_src_md)};
    const Argument w{DNNL_ARG_WEIGHTS, queried(desc, dnnl_query_weights_md)};
    const Argument y{DNNL_ARG_DST, queried(desc, dnnl_query_dst_md)};
    if (!with_bias) return {session, desc, {x, w, y}, context};
    const MemoryDesc bias = g.bias.plain(product_dtype(g, context), context);
    return {session, desc, {x, w, y, {DNNL_ARG_BIAS, bias.get()}}, context};
  }

  Operand x_;
  WeightOperand w_;
  std::optional<Operand> bias_;
  Scratch bias_copy_;
  Result y_;
  Primitive product_;
};

/// The gradients that a plan computes, and how those of the weight and the bias are written.
struct ConvolutionGradients {
  Write write;
  bool of_weight;
  bool of_bias;  // with the weight's
  bool of_input;

  bool operator==(const ConvolutionGradients&) const = default;
};

/// Their memory; null for gradients that are not needed.
struct GradientsInMemory {
  void* dw;
  void* db;
  void* dx;
};

/// dw (+)= the adjoint of w -> x ⋆ w, applied to dy;  db (+)= Σ dy. Both are summed in float and
/// rounded once.
class KernelGradient {
 public:
  KernelGradient(Session& session, const ConvolutionGeometry& g, const ConvolutionGradients& wanted,
                 const ErrorContext& context)
      : desc_(described(session, g, wanted.of_bias, context)),
        x_(session, g.x, queried(desc_, dnnl_query_src_md), context),
        dw_(session, g.w, queried(desc_, dnnl_query_diff_weights_md), wanted.write, context),
        product_(product(session, g, wanted.of_bias, context, desc_)) {
    if (!wanted.of_bias) return;
    const MemoryDesc db = g.bias.plain(gradient_dtype, context);
    db_.emplace(session, g.bias, db.get(), wanted.write, context);
  }

  /// The layout in which run() needs dy.
  ConstDesc dy_layout() const { return queried(desc_, dnnl_query_diff_dst_md); }

  void run(Session& session, const void* x, const void* dy, void* dw, void* db) {
    const void* x_here = x_.read(session, x, session.images().x);
    void* const dw_here = dw_.memory(dw, dw_copy_);
    if (db_) {
      product_.run(session, {x_here, dy, dw_here, db_->memory(db, db_copy_)});
      db_->finish(session, db, db_copy_);
    } else {
      product_.run(session, {x_here, dy, dw_here});
    }
    dw_.finish(session, dw, dw_copy_);
  }

 private:
  static constexpr dnnl_data_type_t gradient_dtype = dnnl_f32;

  static Descriptor described(Session& session, const ConvolutionGeometry& g, bool with_bias,
                              const ErrorContext& context) {
    const Images images = best_images(ConvolutionProduct::backward_weight, g, context);
    const Descriptor forward =
        describe_forward(session, g, {g, images, with_bias, context}, Activation::none, context);
    const OpenTensors tensors(g, images, with_bias, gradient_dtype, context);
    dnnl_primitive_desc_t desc = nullptr;
    check(
        create_convolution_backward_weight(&desc, session.engine(), tensors.get(), g.steps, forward,
                                           attributes(Write::replace, Activation::none, context)),
        "the descriptor of the convolution's weight gradient", context);
    return Descriptor(desc);
  }

  static Primitive product(Session& session, const ConvolutionGeometry& g, bool with_bias,
                           const ErrorContext& context, const Descriptor& desc) {
    const Argument x{DNNL_ARG_SRC, queried(desc, dnnl_query_src_md)};
    const Argument dy{DNNL_ARG_DIFF_DST, queried(desc, dnnl_query_diff_dst_md)};
    const Argument dw{DNNL_ARG_DIFF_WEIGHTS, queried(desc, dnnl_query_diff_weights_md)};
    if (!with_bias) return {session, desc, {x, dy, dw}, context};
    const MemoryDesc db = g.bias.plain(gradient_dtype, context);
    return {session, desc, {x, dy, dw, {DNNL_ARG_DIFF_BIAS, db.get()}}, context};
  }

  Descriptor desc_;
  Operand x_;
  Result dw_;
  std::optional<Result> db_;
  Scratch dw_copy_, db_copy_;
  Primitive product_;
};

/// dx = the adjoint of x -> x ⋆ w, applied to dy.
class InputGradient {
 public:
  InputGradient(Session& session, const ConvolutionGeometry& g, const ErrorContext& context)
      : desc_(described(session, g, context)),
        w_(session, g.w, queried(desc_, dnnl_query_weights_md), context),
        dx_(session, g.x, queried(desc_, dnnl_query_diff_src_md), Write::replace, context),
        product_(session, desc_,
                 {{DNNL_ARG_DIFF_DST, dy_layout()},
                  {DNNL_ARG_WEIGHTS, queried(desc_, dnnl_query_weights_md)},
                  {DNNL_ARG_DIFF_SRC, queried(desc_, dnnl_query_diff_src_md)}},
                 context) {}

  /// The layout in which run() needs dy.
  ConstDesc dy_layout() const { return queried(desc_, dnnl_query_diff_dst_md); }

  void run(Session& session, const void* dy, const void* w, std::uint64_t version, void* dx) {
    Scratch& copy = session.images().x;  // of x, which the kernel's gradient has read
    product_.run(session, {dy, w_.read(session, w, version), dx_.memory(dx, copy)});
    dx_.finish(session, dx, copy);
  }

 private:
  static Descriptor described(Session& session, const ConvolutionGeometry& g,
                              const ErrorContext& context) {
    const Images images = best_images(ConvolutionProduct::backward_input, g, context);
    const OpenTensors tensors(g, images, false, context);
    const Descriptor forward = describe_forward(session, g, tensors, Activation::none, context);
    dnnl_primitive_desc_t desc = nullptr;
    check(
        create_convolution_backward_input(&desc, session.engine(), tensors.get(), g.steps, forward,
                                          attributes(Write::replace, Activation::none, context)),
        "the descriptor of the convolution's input gradient", context);
    return Descriptor(desc);
  }

  Descriptor desc_;
  WeightOperand w_;
  Result dx_;
  Primitive product_;
};

/// All gradients of a convolution. dy is copied once if both products need it in the same layout.
class BackwardConvolution {
 public:
  BackwardConvolution(Session& session, const ConvolutionGeometry& g,
                      const ConvolutionGradients& wanted, const ErrorContext& context) {
    if (wanted.of_weight) {
      kernel_.emplace(session, g, wanted, context);
      dy_.emplace(session, g.y, kernel_->dy_layout(), context);
    }
    if (!wanted.of_input) return;
    input_.emplace(session, g, context);
    if (!kernel_ || dnnl_memory_desc_equal(kernel_->dy_layout(), input_->dy_layout()) == 0)
      dy_of_input_.emplace(session, g.y, input_->dy_layout(), context);
  }

  void run(Session& session, const void* x, const void* dy, const void* w, std::uint64_t version,
           const GradientsInMemory& to) {
    Scratch& copy = session.images().y;
    const void* dy_here = dy;
    if (kernel_) {
      dy_here = dy_->read(session, dy, copy);
      kernel_->run(session, x, dy_here, to.dw, to.db);
    }
    if (!input_) return;
    if (dy_of_input_) dy_here = dy_of_input_->read(session, dy, copy);
    input_->run(session, dy_here, w, version, to.dx);
  }

 private:
  std::optional<KernelGradient> kernel_;
  std::optional<Operand> dy_;
  std::optional<InputGradient> input_;
  std::optional<Operand> dy_of_input_;
};

}  // namespace shardwise::detail::onednn
