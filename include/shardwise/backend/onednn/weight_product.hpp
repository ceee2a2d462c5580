#pragma once
// Products of many rows with one weight: a layer's forward, and the gradient of its input.

#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/backend/onednn/packed_weight.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/products.hpp"

namespace shardwise::detail::onednn {

enum class Direction : bool { forward, backward_input };

/// forward          c[rows, out] = activation(a[rows, in] wᵀ + bias)
/// backward_input   c[rows, in] = a[rows, out] w
///
/// with w [out, in]. Extents are not zero.
class WeightProduct {
 public:
  WeightProduct(Direction direction, Dtype dtype, std::size_t in, std::size_t out)
      : direction_(direction),
        context_{direction == Direction::forward ? "forward" : "backward_input", dtype, 0, in,
                 out} {}

  template <class T>
  void run(Session& session, std::size_t rows, const void* a, const Weight<T>& w, const void* bias,
           Activation activation, void* c) {
    const bool packed = packs(rows, w);
    const Key key{rows, activation, bias != nullptr, packed};
    Primitive& primitive = plans_.get(key, [&] { return plan(session, key); });
    const void* weight = packed ? weight_.copy(session, w.data, w.version) : w.data;
    if (bias != nullptr) {
      primitive.run(session, {a, weight, c, bias});
    } else {
      primitive.run(session, {a, weight, c});
    }
  }

  /// Whether a run with these reads a packed copy of the weight.
  template <class T>
  bool packs(std::size_t rows, const Weight<T>& w) const {
    return w.stays && gains_from_packing(rows);
  }

 private:
  struct Key {
    std::size_t rows;
    Activation activation;
    bool with_bias;
    bool packed;

    bool operator==(const Key&) const = default;
  };

  Primitive plan(Session& session, const Key& key) {
    ErrorContext context = context_;
    context.rows = key.rows;
    if (!key.packed && prefers_inner_product(key.rows)) {
      if (direction_ == Direction::forward)
        return inner_product(session, key.with_bias, key.activation, context);
      return inner_product_backward(session, context);
    }
    MatrixProduct product = plain(key, context);
    if (key.packed) product.b = weight_.layout(session, product, context);
    return matrix_product(session, product, context);
  }

  /// From 1024 float rows on, and at any number for a float weight that is in no cache, the best
  /// plain product is as fast as a packed one. Otherwise packing is faster: 2 to 4 times at 2 to 16
  /// rows of a weight that stays in a cache, and up to 1.3 times from 48 rows on in bf16
  /// (bench/kernels/linear.cpp and bench/log.md, "Few rows").
  bool gains_from_packing(std::size_t rows) const {
    if (context_.dtype != Dtype::float32) return rows > 1;
    return rows > 1 && rows < 1024 && !is_in_no_cache(context_.in * context_.out * sizeof(float));
  }

  /// The faster of oneDNN's two primitives on plain weights, by the same benchmark. One row is a
  /// product of a matrix and a vector, which only `inner_product` has a kernel for. With many float
  /// rows `inner_product` is faster by 5 to 12 %, otherwise `matmul`, by 5 to 20 %.
  bool prefers_inner_product(std::size_t rows) const {
    const std::size_t many = direction_ == Direction::forward ? 1024 : 256;
    return rows == 1 || (rows >= many && context_.dtype == Dtype::float32);
  }

  MatrixProduct plain(const Key& key, const ErrorContext& context) const {
    const std::size_t in = context.in;
    const std::size_t out = context.out;
    if (direction_ == Direction::forward)
      return {row_major(key.rows, in, context), transposed(in, out, context),
              row_major(key.rows, out, context), key.with_bias, key.activation};
    return {row_major(key.rows, out, context), row_major(out, in, context),
            row_major(key.rows, in, context)};
  }

  Direction direction_;
  ErrorContext context_;
  PackedWeight weight_;
  PlanCache<Key, Primitive> plans_;
};

}  // namespace shardwise::detail::onednn
