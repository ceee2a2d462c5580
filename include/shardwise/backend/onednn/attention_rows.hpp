#pragma once
// The softmax of the rows of a block of scores, and its gradient.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/backend/onednn/attention_blocks.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/core/independent_loop.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::onednn {

/// row[k] = 0 outside `kept`.
template <class T>
void clear_outside(T* row, std::size_t size, Interval kept) {
  std::fill_n(row, kept.offset, T(0));
  std::fill(row + kept.end(), row + size, T(0));
}

/// to[i] = factor · from[i].
template <class From, class To>
void write_scaled(const From* from, std::size_t count, float factor, To* to) {
  independent_loop(
      count, [=](std::size_t i) { to[i] = static_cast<To>(factor * static_cast<float>(from[i])); });
}

/// numbers[i] *= factors[i].
inline void multiply_by(const float* factors, std::size_t count, float* numbers) {
  independent_loop(count, [=](std::size_t i) { numbers[i] *= factors[i]; });
}

/// to[i] = from[i], rounded once. Floats are there already.
template <class T>
void round_to(const float* from, std::size_t count, T* to) {
  if constexpr (!std::same_as<T, float>)
    independent_loop(count, [=](std::size_t i) { to[i] = static_cast<T>(from[i]); });
}

/// 2^x for x <= 0 that is rounded to T later.
template <class T>
constexpr float power(float x) {
  return std::same_as<T, float> ? power_of_two(x) : coarse_power_of_two(x);
}

/// numbers[i] = exp(scale · (numbers[i] - the highest)), for T. Returns 1 / their sum. The highest
/// is not that of NaN, but the sum is NaN then. One pass writes and sums, in 32 lanes: clang
/// vectorises neither loop in 16, and none that reads and writes memory through two pointers.
template <class T>
float exponentials(float* numbers, std::size_t count, float scale) {
  constexpr float log2e = 1.44269504F;
  float sum = 0;
  in_fused_vectors([=, &sum] {
    const float highest = lane_reduce<32>(
        count, -std::numeric_limits<float>::infinity(), [=](std::size_t i) { return numbers[i]; },
        [](float a, float b) { return a < b ? b : a; });
    sum = lane_reduce<32>(
        count, 0.0F,
        [=](std::size_t i) {
          return numbers[i] = power<T>(scale * log2e * (numbers[i] - highest));
        },
        Plus{});
  });
  return 1 / sum;
}

/// Σ a[i] b[i].
inline float fused_dot(const float* a, const float* b, std::size_t count) {
  float sum = 0;
  in_fused_vectors([=, &sum] { sum = dot(a, b, count); });
  return sum;
}

/// The rows of a block, for one head. A row of products q·k, and one of gradients by weights,
/// become what the next products multiply, rounded once to their dtype T; floats in place.
template <class T, class Operands>
struct AttentionRows {
  const Operands& of;
  AttentionBlock block;
  std::size_t head;
  float* bends;    ///< memory for a row
  float* factors;  ///< memory for a row

  /// Writes the weights of a row before their division by a sum, and returns 1 / this sum; 0 if the
  /// row sees nothing.
  float weigh(std::size_t row, float* products, T* weights) const {
    const Interval seen = block.seen(of.tokens, row);
    clear_outside(weights, block.keys.size, seen);
    if (seen.size == 0) return 0;
    float* const scores = products + seen.offset;
    bend_by_soft_cap(scores, seen.size);
    const float inverse = exponentials<T>(scores, seen.size, scale_of_exponents());
    if (drops()) {
      draw(row, seen);
      multiply_by(factors, seen.size, scores);
    }
    round_to(scores, seen.size, weights + seen.offset);
    return inverse;
  }

  /// Writes the weights of a row, and the gradients by its products.
  void slope(std::size_t row, float* products, float* gradients, T* weights, T* slopes) const {
    const Interval seen = block.seen(of.tokens, row);
    clear_outside(weights, block.keys.size, seen);
    clear_outside(slopes, block.keys.size, seen);
    if (seen.size == 0) return;
    float* const scores = products + seen.offset;
    float* const by_weight = gradients + seen.offset;
    bend_by_soft_cap(scores, seen.size);
    if (caps()) write_slopes_of_bend(scores, seen.size);
    const float inverse = exponentials<T>(scores, seen.size, scale_of_exponents());
    if (drops()) {
      draw(row, seen);
      multiply_by(factors, seen.size, by_weight);
    }
    const float mean = inverse * fused_dot(scores, by_weight, seen.size);
    in_fused_vectors([=, count = seen.size, scale = of.scale] {
      plain_loop(count, [=](std::size_t k) {
        const float weight = scores[k] * inverse;
        by_weight[k] = scale * weight * (by_weight[k] - mean);
        scores[k] = weight;
      });
    });
    if (caps()) multiply_by(bends, seen.size, by_weight);
    if (drops()) multiply_by(factors, seen.size, scores);
    round_to(scores, seen.size, weights + seen.offset);
    round_to(by_weight, seen.size, slopes + seen.offset);
  }

 private:
  bool drops() const { return of.dropout.probability != 0; }

  bool caps() const { return of.soft_cap != 0; }

  /// A soft cap scales before it bends, so scores are products without one.
  float scale_of_exponents() const { return caps() ? 1.0F : of.scale; }
  void bend_by_soft_cap(float* scores, std::size_t count) const {
    if (!caps()) return;
    independent_loop(count,
                     [scores, cap = of.soft_cap, scale = of.scale / of.soft_cap](std::size_t k) {
                       scores[k] = cap * hyperbolic_tangent(scale * scores[k]);
                     });
  }
  void write_slopes_of_bend(const float* scores, std::size_t count) const {
    independent_loop(count, [=, bends = bends, per_cap = 1 / of.soft_cap](std::size_t k) {
      const float bent = scores[k] * per_cap;
      bends[k] = 1 - bent * bent;
    });
  }

  void draw(std::size_t row, Interval seen) const {
    of.dropout.put_factors(of.tokens, of.heads, block.queries.offset + row, head,
                           {block.keys.offset + seen.offset, seen.size}, factors);
  }
};

}  // namespace shardwise::detail::onednn
