#pragma once
// The plans of a convolution's products.

#include <oneapi/dnnl/dnnl.h>

#include <cstdint>
#include <optional>
#include <span>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/onednn/attributes.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/convolution_geometry.hpp"
#include "shardwise/backend/onednn/handle.hpp"
#include "shardwise/backend/onednn/library.hpp"
#include "shardwise/backend/onednn/planned_product.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/session.hpp"

namespace shardwise::detail::onednn {

/// The dtype in which the library multiplies: bf16 if the processor supports it and the library is
/// correct; else float, and the reorders convert.
inline dnnl_data_type_t product_dtype(const ConvolutionGeometry& g, const ErrorContext& context) {
  return context.dtype == Dtype::bfloat16 && multiplies_bf16() && g.bf16_is_right ? dnnl_bf16
                                                                                  : dnnl_f32;
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

/// The tensors of a convolution, with images as `images` says, a weight in the layout that the
/// library chooses, and weight and bias in `weight_dtype`.
class OpenTensors {
 public:
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

/// The primitive for a product. To plan a gradient the library needs the forward product.
inline Descriptor describe(Session& session, ConvolutionProduct product,
                           const ConvolutionGeometry& g, bool with_bias, Activation activation,
                           const ErrorContext& context) {
  const Images images = best_images(product, g, context);
  const Attributes attr = attributes(Write::replace, activation, context);
  const OpenTensors tensors(g, images, with_bias, product_dtype(g, context), context);
  dnnl_primitive_desc_t made = nullptr;
  check(create_convolution(&made, session.engine(), tensors.get(), g.steps, attr),
        "the descriptor of convolution", context);
  Descriptor forward(made);
  if (product == ConvolutionProduct::forward) return forward;
  if (product == ConvolutionProduct::backward_input) {
    check(create_convolution_backward_input(&made, session.engine(), tensors.get(), g.steps,
                                            forward, attr),
          "the descriptor of the convolution's input gradient", context);
  } else {
    const OpenTensors in_float(g, images, with_bias, dnnl_f32, context);
    check(create_convolution_backward_weight(&made, session.engine(), in_float.get(), g.steps,
                                             forward, attr),
          "the descriptor of the convolution's weight gradient", context);
  }
  return Descriptor(made);
}

/// y = activation(x ⋆ w + bias), of {x, w, y, bias}.
inline PlannedProduct plan_forward(Session& session, const ConvolutionGeometry& g, bool with_bias,
                                   Activation activation, const ErrorContext& context) {
  ConvolutionCopies& copies = session.convolution_copies();
  const ProductTensor tensors[] = {{DNNL_ARG_SRC, g.x, Role::read, &copies.x},
                                   {DNNL_ARG_WEIGHTS, g.w, Role::read_and_kept},
                                   {DNNL_ARG_DST, g.y, Role::replaced, &copies.y},
                                   {DNNL_ARG_BIAS, g.bias, Role::read, &copies.bias}};
  const Descriptor desc =
      describe(session, ConvolutionProduct::forward, g, with_bias, activation, context);
  return {session, desc, std::span(tensors).first(with_bias ? 4 : 3), context};
}

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

/// All gradients of a convolution:
///
///     dw (+)= the adjoint of w -> x ⋆ w, applied to dy      db (+)= Σ dy
///     dx    = the adjoint of x -> x ⋆ w, applied to dy
///
/// dw and db are summed in float and rounded once. dy is copied once if both products need it in
/// the same layout.
class BackwardConvolution {
 public:
  BackwardConvolution(Session& session, const ConvolutionGeometry& g,
                      const ConvolutionGradients& wanted, const ErrorContext& context) {
    const auto described = [&](ConvolutionProduct product, bool with_bias) {
      return describe(session, product, g, with_bias, Activation::none, context);
    };
    Descriptor of_weight;
    if (wanted.of_weight) {
      of_weight = described(ConvolutionProduct::backward_weight, wanted.of_bias);
      plan_weight(session, of_weight, g, wanted, context);
    }
    if (!wanted.of_input) return;
    const Descriptor of_input = described(ConvolutionProduct::backward_input, false);
    const bool copied =
        wanted.of_weight && dnnl_memory_desc_equal(chosen_layout(of_weight, DNNL_ARG_DIFF_DST),
                                                   chosen_layout(of_input, DNNL_ARG_DIFF_DST)) != 0;
    plan_input(session, of_input, g, copied ? Role::read_again : Role::read, context);
  }

  void run(Session& session, const void* x, const void* dy, const void* w, std::uint64_t version,
           const GradientsInMemory& to) {
    if (weight_) weight_->run(session, {x, dy, to.dw, to.db}, version);
    if (input_) input_->run(session, {dy, w, to.dx}, version);
  }

 private:
  void plan_weight(Session& session, const Descriptor& desc, const ConvolutionGeometry& g,
                   const ConvolutionGradients& wanted, const ErrorContext& context) {
    ConvolutionCopies& copies = session.convolution_copies();
    const Role result = wanted.write == Write::add ? Role::added_to : Role::replaced;
    const ProductTensor tensors[] = {{DNNL_ARG_SRC, g.x, Role::read, &copies.x},
                                     {DNNL_ARG_DIFF_DST, g.y, Role::read, &copies.y},
                                     {DNNL_ARG_DIFF_WEIGHTS, g.w, result, &copies.w},
                                     {DNNL_ARG_DIFF_BIAS, g.bias, result, &copies.bias}};
    weight_.emplace(session, desc, std::span(tensors).first(wanted.of_bias ? 4 : 3), context);
  }

  void plan_input(Session& session, const Descriptor& desc, const ConvolutionGeometry& g, Role dy,
                  const ErrorContext& context) {
    ConvolutionCopies& copies = session.convolution_copies();
    const ProductTensor tensors[] = {{DNNL_ARG_DIFF_DST, g.y, dy, &copies.y},
                                     {DNNL_ARG_WEIGHTS, g.w, Role::read_and_kept},
                                     {DNNL_ARG_DIFF_SRC, g.x, Role::replaced, &copies.x}};
    input_.emplace(session, desc, tensors, context);
  }

  std::optional<PlannedProduct> weight_;
  std::optional<PlannedProduct> input_;
};

}  // namespace shardwise::detail::onednn
