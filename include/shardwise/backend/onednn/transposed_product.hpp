#pragma once
// The product of a few rows with a weight, as the transpose of the weight's product with them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/backend/onednn/forward.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/products.hpp"
#include "shardwise/backend/onednn/transpose.hpp"
#include "shardwise/backend/onednn/vector_dot.hpp"

namespace shardwise::detail::onednn {

/// Whether TransposedProduct is faster than the library's product of rows with a weight that is in
/// no cache: seen on a Xeon, see bench/log.md, "Few rows".
inline bool gains_from_transposed_product(std::size_t rows) {
  return has_vectors && rows > 1 && rows <= 48 && has(dnnl_cpu_isa_avx512_core);
}

/// The forward of one layer.
///
/// The library reads the first factor of a product as it lies, and copies the second one into
/// blocks. With few rows the weight is the large factor, so this computes w xᵀ [out, rows], in
/// float, and transposes it. For a processor with vectors of 16 floats.
template <class T>
class TransposedProduct {
 public:
  TransposedProduct(std::size_t in, std::size_t out) : in_(in), out_(out) {}

  /// Throws backend_error, memory_error.
  void run(Session& session, const Forward<T>& of) {
    Primitive& primitive = plans_.get(of.rows, [&] { return plan(session, of.rows); });
    void* const memory =
        session.result().reserve((whole_vectors(out_) * of.rows + width) * sizeof(float));
    primitive.run(session, {of.w, of.x, memory});
    for (std::size_t o = 0; o < out_; o += width)
      for (std::size_t row = 0; row < of.rows; row += width)
        put(of, static_cast<const float*>(memory), row, o);
  }

 private:
  static constexpr std::size_t width = 16;

  static std::size_t whole_vectors(std::size_t n) { return (n + width - 1) / width * width; }

  /// Writes the outputs from `o` on of the rows from `row` on, at most 16 of each, whose sums are
  /// [out, rows]. Vectors are read past the end of lines of sums.
  static void put(const Forward<T>& of, const float* sums, std::size_t row, std::size_t o) {
    const std::size_t columns = std::min(width, of.out - o), lines = std::min(width, of.rows - row);
    in_vectors_of_16([&] {
      std::array<Floats16, width> block;
      for (std::size_t i = 0; i < width; ++i) load(sums + (o + i) * of.rows + row, block[i]);
      transpose(block);
      float values[width][width];
      std::memcpy(values, block.data(), sizeof values);
      for (std::size_t r = 0; r < lines; ++r) of.put(row + r, o, columns, values[r]);
    });
  }

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
