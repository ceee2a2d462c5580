#pragma once
// The softmax of the rows of a block of scores, and its gradient.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>

#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/detail/independent_loop.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/backend/onednn/attention_blocks.hpp"
#include "shardwise/core/dtype.hpp"
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

/// e^x for x <= 0 that is rounded to T later.
template <class T>
constexpr float power(float x) {
  return std::same_as<T, float> ? exponential(x) : coarse_exponential(x);
}

/// numbers[i] = exp(scale · (numbers[i] - the highest)), for T. Returns 1 / their sum. One pointer:
/// clang vectorises no loop that reads and writes the same memory through two.
template <class T>
float exponentials(float* numbers, std::size_t count, float scale) {
  float sum = 0;
  in_widest_vectors([&] {
    const float highest = lane_reduce<32>(
        count, -std::numeric_limits<float>::infinity(), [=](std::size_t i) { return numbers[i]; },
        Largest{});
    plain_loop(count,
               [=](std::size_t i) { numbers[i] = power<T>(scale * (numbers[i] - highest)); });
    sum = lane_sum<float>(count, [=](std::size_t i) { return numbers[i]; });
  });
  return 1 / sum;
}

/// The rows of a block, for one head. A row of products q·k, and one of gradients by weights,
/// become what the next products multiply, rounded once to their dtype T; floats in place.
template <class T, class Operands>
struct AttentionRows {
  const Operands& of;
  AttentionBlock block;
  std::size_t head;
  float* powers;   ///< memory for a row
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
    std::copy_n(scores, seen.size, powers);
    const float inverse = exponentials<T>(powers, seen.size, scale_of_exponents());
    if (drops()) {
      draw(row, seen);
      multiply_by(factors, seen.size, by_weight);
    }
    const float mean = inverse * lane_sum<float>(seen.size, [=, powers = powers](std::size_t k) {
                         return powers[k] * by_weight[k];
                       });
    const float per_cap = of.soft_cap == 0 ? 0.0F : 1 / of.soft_cap;
    independent_loop(seen.size, [=, powers = powers, scale = of.scale](std::size_t k) {
      const float bent = scores[k] * per_cap, weight = powers[k] * inverse;
      by_weight[k] = weight * (by_weight[k] - mean) * (scale * (1 - bent * bent));
      scores[k] = weight;
    });
    if (drops()) multiply_by(factors, seen.size, scores);
    round_to(scores, seen.size, weights + seen.offset);
    round_to(by_weight, seen.size, slopes + seen.offset);
  }

 private:
  bool drops() const { return of.dropout.probability != 0; }

  /// A soft cap scales before it bends, so scores are products without one.
  float scale_of_exponents() const { return of.soft_cap == 0 ? of.scale : 1.0F; }
  void bend_by_soft_cap(float* scores, std::size_t count) const {
    if (of.soft_cap == 0) return;
    independent_loop(count,
                     [scores, cap = of.soft_cap, scale = of.scale / of.soft_cap](std::size_t k) {
                       scores[k] = cap * hyperbolic_tangent(scale * scores[k]);
                     });
  }

  void draw(std::size_t row, Interval seen) const {
    for (std::size_t k = 0; k < seen.size; ++k)
      factors[k] = of.drawn(block.queries.offset + row, head, block.keys.offset + seen.offset + k);
  }
};

}  // namespace shardwise::detail::onednn
