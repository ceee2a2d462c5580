#pragma once
// The product of a few rows with a weight, as the transpose of the weight's product with them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/products.hpp"
#include "shardwise/backend/onednn/row_product.hpp"
#include "shardwise/backend/onednn/transpose.hpp"
#include "shardwise/backend/onednn/vector_dot.hpp"

namespace shardwise::detail::onednn {

/// Whether TransposedProduct is faster than the library's product of rows with a weight that is in
/// no cache: seen on a Xeon, see bench/log.md, "Few rows".
inline bool gains_from_transposed_product(std::size_t rows) {
  return has_vectors && rows > 1 && rows <= 48 && has(dnnl_cpu_isa_avx512_core);
}

/// y[rows, out] = activation(x[rows, in] wᵀ + bias[out]), with w [out, in] as it lies.
///
/// The library reads the first factor of a product as it lies, and copies the second one into
/// blocks. With few rows the weight is the large factor, so this computes w xᵀ [out, rows], in
/// float, and transposes it. For a processor with vectors of 16 floats.
template <class T>
class TransposedProduct {
 public:
  TransposedProduct(std::size_t in, std::size_t out) : in_(in), out_(out) {}

  /// `bias` may be null; extents are not zero. Throws backend_error, memory_error.
  void run(Session& session, std::size_t rows, const T* x, const T* w, const T* bias,
           Activation activation, T* y) {
    Primitive& primitive = plans_.get(rows, [&] { return plan(session, rows); });
    void* const memory =
        session.result().reserve((whole_vectors(out_) * rows + width) * sizeof(float));
    primitive.run(session, {w, x, memory});
    const Result result{rows, out_, static_cast<const float*>(memory), bias, activation, y};
    for (std::size_t o = 0; o < out_; o += width)
      for (std::size_t row = 0; row < rows; row += width) result.put(row, o);
  }

 private:
  static constexpr std::size_t width = 16;

  static std::size_t whole_vectors(std::size_t n) { return (n + width - 1) / width * width; }

  /// The transposed product, and where it is put. Vectors are read past the end of its lines.
  struct Result {
    std::size_t rows, out;
    const float* sums;  // [out, rows]
    const T* bias;
    Activation activation;
    T* y;

    /// The outputs from `o` on of the rows from `row` on, at most 16 of each.
    void put(std::size_t row, std::size_t o) const {
      const std::size_t columns = std::min(width, out - o), lines = std::min(width, rows - row);
      std::array<float, width * width> values;
      in_vectors_of_16([&] {
        std::array<Floats16, width> block;
        for (std::size_t i = 0; i < width; ++i) load(sums + (o + i) * rows + row, block[i]);
        transpose(block);
        if (bias != nullptr) {
          std::array<float, width> numbers{};
          for (std::size_t i = 0; i < columns; ++i) numbers[i] = static_cast<float>(bias[o + i]);
          Floats16 added;
          load(numbers.data(), added);
          for (Floats16& line : block) line += added;
        }
        std::memcpy(values.data(), block.data(), sizeof block);
      });
      if (activation != Activation::none) activate(activation, values.data(), lines * width);
      in_vectors_of_16([&] {
        for (std::size_t r = 0; r < lines; ++r) {
          std::array<T, width> line;
          for (std::size_t i = 0; i < width; ++i) line[i] = static_cast<T>(values[r * width + i]);
          std::memcpy(y + (row + r) * out + o, line.data(), columns * sizeof(T));
        }
      });
    }
  };

  Primitive plan(Session& session, std::size_t rows) const {
    const ErrorContext context{"forward", dtype_v<T>, rows, in_, out_};
    ErrorContext in_float = context;
    in_float.dtype = Dtype::float32;
    return matrix_product(session,
                          {row_major(out_, in_, context), transposed(in_, rows, context),
                           row_major(out_, rows, in_float)},
                          context);
  }

  std::size_t in_, out_;
  PlanCache<std::size_t, Primitive> plans_;
};

}  // namespace shardwise::detail::onednn
