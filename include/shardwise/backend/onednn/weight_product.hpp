#pragma once
// Products of many rows with one weight: a layer's forward and its gradient towards the input.

#include <cstddef>
#include <cstdint>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/onednn/packed_weight.hpp"
#include "shardwise/backend/onednn/plan_cache.hpp"
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
        purpose_{direction == Direction::forward ? "forward" : "backward_input", dtype, 0, in,
                 out} {}

  void run(Session& session, std::size_t rows, const void* a, const void* w, std::uint64_t version,
           const void* bias, Activation activation, void* c) {
    const bool packed = rows > 1 && weight_.count_use(w, version);
    const Key key{rows, activation, bias != nullptr, packed};
    Primitive& primitive = plans_.get(key, [&] { return plan(session, key); });
    const void* weight = packed ? weight_.copy(session) : w;
    if (bias != nullptr) {
      primitive.run(session, {a, weight, c, bias});
    } else {
      primitive.run(session, {a, weight, c});
    }
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
    Purpose purpose = purpose_;
    purpose.rows = key.rows;
    if (!key.packed && prefers_inner_product(key.rows)) {
      if (direction_ == Direction::forward)
        return inner_product(session, key.with_bias, key.activation, purpose);
      return inner_product_backward(session, purpose);
    }
    MatrixProduct product = plain(key, purpose);
    if (key.packed) product.b = weight_.layout(session, product, purpose);
    return matrix_product(session, product, purpose);
  }

  /// Which of oneDNN's two primitives is faster on plain weights. One row is a product of a matrix
  /// and a vector, which only `inner_product` treats as such (up to 3 times as fast); from 256
  /// float rows its kernel is ahead by 3 to 8 %. Between them `matmul` is, by 5 to 20 %.
  bool prefers_inner_product(std::size_t rows) const {
    return rows == 1 || (rows >= 256 && purpose_.dtype == Dtype::float32);
  }

  MatrixProduct plain(const Key& key, const Purpose& purpose) const {
    const std::size_t in = purpose.in;
    const std::size_t out = purpose.out;
    if (direction_ == Direction::forward)
      return {row_major(key.rows, in, purpose), transposed(in, out, purpose),
              row_major(key.rows, out, purpose), key.with_bias, key.activation};
    return {row_major(key.rows, out, purpose), row_major(out, in, purpose),
            row_major(key.rows, in, purpose)};
  }

  Direction direction_;
  Purpose purpose_;
  PackedWeight weight_;
  PlanCache<Key> plans_;
};

}  // namespace shardwise::detail::onednn
