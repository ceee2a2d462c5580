#pragma once
// A linear layer written by hand: three products of cuBLASLt with what they can fuse, and one pass
// that takes 16 bytes at a time for ReLU's gradient.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <type_traits>

#include "gpu/linear_model.hpp"
#include "gpu/product_by_hand.hpp"
#include "gpu/uniform.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/memory.hpp"

namespace by_hand {

template <class T>
constexpr cudaDataType_t cuda_type() {
  if (std::is_same_v<T, shardwise::bf16>) return CUDA_R_16BF;
  if (std::is_same_v<T, shardwise::fp16>) return CUDA_R_16F;
  return CUDA_R_32F;
}

/// to = dy where y is above zero, and zero elsewhere, for 16 bytes of each.
template <class T>
struct ReluGradient {
  struct alignas(16) Chunk {
    std::array<T, 16 / sizeof(T)> numbers;
  };

  const Chunk* y;
  const Chunk* dy;
  Chunk* to;

  constexpr void operator()(std::size_t i) const {
    const Chunk output = y[i];
    Chunk gradient = dy[i];
    for (std::size_t k = 0; k < gradient.numbers.size(); ++k)
      if (!(static_cast<float>(output.numbers[k]) > 0)) gradient.numbers[k] = static_cast<T>(0.0F);
    to[i] = gradient;
  }
};

/// On the matrices of a model, with results of its own. `Backend` has session() and for_each.
template <class Backend, class T>
class Linear {
 public:
  /// `relu`: behind the product.
  Linear(Backend& backend, const bench::LinearSizes& s, bench::LinearPointers<T> given, bool relu,
         bool tf32)
      : backend_(backend),
        pool_(backend.session().memory()),
        workspace_(pool_.take(workspace_bytes)),
        y_(pool_, s.rows * s.out),
        dy_(pool_, relu ? s.rows * s.out : 0),
        dx_(pool_, s.rows * s.in),
        dw_(pool_, s.out * s.in),
        db_(pool_, s.out),
        at_{given.x, given.w, given.bias, given.dy, y_.data(), dx_.data(), dw_.data(), db_.data()},
        sizes_(s),
        relu_(relu),
        compute_(tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F),
        forward_(library(),
                 product(CUBLAS_OP_T, CUBLAS_OP_N, s.out, s.rows, s.in, at_.w, at_.x, at_.y,
                         relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS,
                         const_cast<T*>(at_.bias))),
        input_(library(), product(CUBLAS_OP_N, CUBLAS_OP_N, s.in, s.rows, s.out, at_.w, slope(),
                                  at_.dx, CUBLASLT_EPILOGUE_DEFAULT, nullptr)),
        weight_(weight_gradient()) {}

  void forward() { forward_(); }

  void train() {
    forward_();
    if (relu_) {
      using Pass = ReluGradient<T>;
      using Chunk = typename Pass::Chunk;
      backend_.for_each(
          sizes_.rows * sizes_.out / Chunk{}.numbers.size(),
          Pass{reinterpret_cast<const Chunk*>(at_.y), reinterpret_cast<const Chunk*>(at_.dy),
               reinterpret_cast<Chunk*>(dy_.data())});
    }
    weight_();
    if (bias_) (*bias_)();
    input_();
  }

  /// Where the results of the last call lie.
  bench::LinearProducts<T> products() const { return {sizes_, at_, relu_ ? at_.y : nullptr}; }

 private:
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // what shardwise takes

  Library library() {
    auto& session = backend_.session();
    return {session.cublaslt(), session.stream().get(), workspace_.data(), workspace_bytes};
  }

  ProductCall product(cublasOperation_t op_a, cublasOperation_t op_b, std::size_t m, std::size_t n,
                      std::size_t k, const T* a, const T* b, T* d, cublasLtEpilogue_t epilogue,
                      T* vector) const {
    return {cuda_type<T>(), compute_, op_a, op_b, m, n, k, a, b, d, epilogue, vector};
  }

  /// With the sums over rows in it or, where cuBLASLt has no such product, beside it.
  Product weight_gradient() {
    const bench::LinearSizes& s = sizes_;
    const auto call = [&](cublasLtEpilogue_t epilogue, T* vector) {
      return product(CUBLAS_OP_N, CUBLAS_OP_T, s.in, s.out, s.rows, at_.x, slope(), at_.dw,
                     epilogue, vector);
    };
    try {
      return {library(), call(CUBLASLT_EPILOGUE_BGRADB, at_.db)};
    } catch (const std::runtime_error&) {
      bias_.emplace(library(),
                    product(CUBLAS_OP_N, CUBLAS_OP_N, s.out, 1, s.rows, slope(),
                            backend_.session().template ones<T>().get(s.rows, library().stream),
                            at_.db, CUBLASLT_EPILOGUE_DEFAULT, nullptr));
      return {library(), call(CUBLASLT_EPILOGUE_DEFAULT, nullptr)};
    }
  }

  /// The gradient of the product, with that of ReLU in it.
  const T* slope() const { return relu_ ? dy_.data() : at_.dy; }

  Backend& backend_;
  shardwise::Pool pool_;
  shardwise::Buffer workspace_;
  bench::Numbers<T> y_, dy_, dx_, dw_, db_;
  bench::LinearPointers<T> at_;
  bench::LinearSizes sizes_;
  bool relu_;
  cublasComputeType_t compute_;
  std::optional<Product> bias_;
  Product forward_, input_, weight_;
};

}  // namespace by_hand
