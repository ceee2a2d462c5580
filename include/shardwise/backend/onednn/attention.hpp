#pragma once
// Attention by products of oneDNN, in blocks of queries.

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/detail/independent_loop.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/matrix.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/onednn/scratch.hpp"
#include "shardwise/backend/onednn/threads.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise {
namespace detail::onednn {

/// A row-major matrix whose rows begin `stride` elements apart. `T` is float or const float.
template <class T>
struct StridedRows {
  T* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;

  T* row(std::size_t r) const { return data + r * stride; }
};

/// Whether a product reads a matrix or its transpose.
enum class Reads : char { plain = 'N', transpose = 'T' };

/// c = factor · a b, or c += factor · a b. No extent is zero.
inline void multiply(float factor, Reads of_a, StridedRows<const float> a, Reads of_b,
                     StridedRows<const float> b, Write write, StridedRows<float> c) {
  const std::size_t inner = of_a == Reads::plain ? a.columns : a.rows;
  check(dnnl_sgemm(static_cast<char>(of_a), static_cast<char>(of_b), as_dim(c.rows),
                   as_dim(c.columns), as_dim(inner), factor, a.data, as_dim(a.stride), b.data,
                   as_dim(b.stride), write == Write::add ? 1.0F : 0.0F, c.data, as_dim(c.stride)),
        "dnnl_sgemm", {"attention", Dtype::float32, c.rows, inner, c.columns});
}

/// Neighbouring rows of queries, all of one sample, and the rows of keys from the first that one of
/// them sees to the last.
struct AttentionBlock {
  Interval queries;
  Interval keys;

  /// What row `row` of the block sees, counted from the first key of the block.
  Interval seen(const AttentionTokens& tokens, std::size_t row) const {
    const Interval of_row = tokens.keys_of(queries.offset + row);
    return {of_row.size == 0 ? 0 : of_row.offset - keys.offset, of_row.size};
  }
};

inline AttentionBlock attention_block(const AttentionTokens& tokens, Interval queries) {
  std::size_t begin = std::numeric_limits<std::size_t>::max(), end = 0;
  for (std::size_t row = queries.offset; row < queries.end(); ++row) {
    const Interval seen = tokens.keys_of(row);
    if (seen.size == 0) continue;
    begin = std::min(begin, seen.offset);
    end = std::max(end, seen.end());
  }
  return {queries, end == 0 ? Interval{} : Interval{begin, end - begin}};
}

/// A block of few queries computes few products of which a causal attention needs none; one of many
/// reads keys less often.
constexpr std::size_t rows_of_block(const AttentionTokens& tokens) {
  return tokens.causal ? 64 : 128;
}

/// Calls f(block) for all blocks of queries in memory.
template <class F>
void for_each_block(const AttentionTokens& tokens, const F& f) {
  const std::size_t here = tokens.queries.here;
  for (std::size_t sample = 0; sample < tokens.queries.samples; ++sample)
    for (std::size_t row = 0; row < here; row += rows_of_block(tokens)) {
      const std::size_t count = std::min(rows_of_block(tokens), here - row);
      f(attention_block(tokens, {sample * here + row, count}));
    }
}

/// Memory of one block, for one head: its scores, the gradients of its weights, and two rows.
/// Linear in the sequence, because a block has a bounded number of queries.
class AttentionPanels {
 public:
  AttentionPanels(Scratch& scratch, const AttentionTokens& tokens)
      : rows_(std::min(rows_of_block(tokens), tokens.queries.here)),
        stride_((tokens.keys.here + 15) / 16 * 16 + 16) {  // no power of two: cache sets
    data_ = static_cast<float*>(scratch.reserve((2 * rows_ + 2) * stride_ * sizeof(float)));
  }

  StridedRows<float> scores(const AttentionBlock& block) const { return panel(block, 0); }
  StridedRows<float> slopes(const AttentionBlock& block) const { return panel(block, rows_); }
  float* weights() const { return data_ + 2 * rows_ * stride_; }
  float* factors() const { return weights() + stride_; }

 private:
  StridedRows<float> panel(const AttentionBlock& block, std::size_t first) const {
    return {data_ + first * stride_, block.queries.size, block.keys.size, stride_};
  }

  float* data_ = nullptr;
  std::size_t rows_;
  std::size_t stride_;
};

/// row[k] = 0 outside `kept`.
inline void clear_outside(float* row, std::size_t size, Interval kept) {
  std::fill_n(row, kept.offset, 0.0F);
  std::fill(row + kept.end(), row + size, 0.0F);
}

/// The attention of one head on one block of queries.
template <class Stream>
class AttentionOfHead {
 public:
  AttentionOfHead(const AttentionOperands<float, Stream>& of, const AttentionPanels& panels,
                  const AttentionBlock& block, std::size_t head)
      : of_(of),
        block_(block),
        head_(head),
        scores_(panels.scores(block)),
        slopes_(panels.slopes(block)),
        weights_(panels.weights()),
        factors_(panels.factors()) {}

  void forward(float* y) const {
    const StridedRows<float> out = of_queries(y);
    if (block_.keys.size == 0) return clear(out);
    multiply(of_.scale, Reads::plain, of_queries(of_.q), Reads::transpose, of_keys(of_.k),
             Write::replace, scores_);
    for (std::size_t row = 0; row < block_.queries.size; ++row) weigh(row);
    multiply(1, Reads::plain, plain(scores_), Reads::plain, of_keys(of_.v), Write::replace, out);
  }

  /// Adds to dk and dv.
  void backward(const float* dy, float* dq, float* dk, float* dv) const {
    if (block_.keys.size == 0) {
      if (dq != nullptr) clear(of_queries(dq));
      return;
    }
    multiply(of_.scale, Reads::plain, of_queries(of_.q), Reads::transpose, of_keys(of_.k),
             Write::replace, scores_);
    multiply(1, Reads::plain, of_queries(dy), Reads::transpose, of_keys(of_.v), Write::replace,
             slopes_);
    for (std::size_t row = 0; row < block_.queries.size; ++row) slope(row);
    if (dq != nullptr)
      multiply(1, Reads::plain, plain(slopes_), Reads::plain, of_keys(of_.k), Write::replace,
               of_queries(dq));
    if (dk != nullptr)
      multiply(1, Reads::transpose, plain(slopes_), Reads::plain, of_queries(of_.q), Write::add,
               of_keys(dk));
    if (dv != nullptr)
      multiply(1, Reads::transpose, plain(scores_), Reads::plain, of_queries(dy), Write::add,
               of_keys(dv));
  }

 private:
  static StridedRows<const float> plain(StridedRows<float> m) {
    return {m.data, m.rows, m.columns, m.stride};
  }
  template <class T>
  StridedRows<T> of_queries(T* tensor) const {
    return {tensor + of_.query_at(block_.queries.offset, head_), block_.queries.size,
            of_.heads.size, of_.heads.queries * of_.heads.size};
  }
  template <class T>
  StridedRows<T> of_keys(T* tensor) const {
    return {tensor + of_.key_at(block_.keys.offset, of_.heads.key_of(head_)), block_.keys.size,
            of_.heads.size, of_.heads.keys * of_.heads.size};
  }
  static void clear(StridedRows<float> m) {
    for (std::size_t r = 0; r < m.rows; ++r) std::fill_n(m.row(r), m.columns, 0.0F);
  }

  void bend_by_soft_cap(float* scores, std::size_t count) const {
    if (of_.soft_cap != 0)
      independent_loop(count, [scores, cap = of_.soft_cap](std::size_t k) {
        scores[k] = cap * hyperbolic_tangent(scores[k] / cap);
      });
  }

  /// row[k] becomes exp(row[k] - the highest) / their sum. One pointer: clang vectorises no loop
  /// that reads and writes the same memory through two.
  static void softmax(float* row, std::size_t count) {
    const float highest = lane_reduce<32>(
        count, -std::numeric_limits<float>::infinity(), [row](std::size_t k) { return row[k]; },
        Largest{});
    independent_loop(count, [=](std::size_t k) { row[k] = exponential(row[k] - highest); });
    const float inverse = 1 / lane_sum<float>(count, [=](std::size_t k) { return row[k]; });
    independent_loop(count, [=](std::size_t k) { row[k] *= inverse; });
  }

  bool drops() const { return of_.dropout.probability != 0; }
  /// The factors of the weights of a row.
  void draw(std::size_t row, Interval seen) const {
    for (std::size_t k = 0; k < seen.size; ++k)
      factors_[k] =
          of_.drawn(block_.queries.offset + row, head_, block_.keys.offset + seen.offset + k);
  }
  void multiply_by_factors(float* numbers, std::size_t count) const {
    independent_loop(count, [=, factors = factors_](std::size_t k) { numbers[k] *= factors[k]; });
  }

  /// The scores of a row become its weights.
  void weigh(std::size_t row) const {
    const Interval seen = block_.seen(of_.tokens, row);
    clear_outside(scores_.row(row), scores_.columns, seen);
    if (seen.size == 0) return;
    float* const scores = scores_.row(row) + seen.offset;
    bend_by_soft_cap(scores, seen.size);
    softmax(scores, seen.size);
    if (!drops()) return;
    draw(row, seen);
    multiply_by_factors(scores, seen.size);
  }

  /// The scores of a row become its weights, and the gradients by its weights become those by its
  /// products q·k.
  void slope(std::size_t row) const {
    const Interval seen = block_.seen(of_.tokens, row);
    clear_outside(scores_.row(row), scores_.columns, seen);
    clear_outside(slopes_.row(row), slopes_.columns, seen);
    if (seen.size == 0) return;
    float* const scores = scores_.row(row) + seen.offset;
    float* const slopes = slopes_.row(row) + seen.offset;
    float* const weights = weights_;
    bend_by_soft_cap(scores, seen.size);
    std::copy_n(scores, seen.size, weights);
    softmax(weights, seen.size);
    if (drops()) {
      draw(row, seen);
      multiply_by_factors(slopes, seen.size);
    }
    const float mean =
        lane_sum<float>(seen.size, [=](std::size_t k) { return weights[k] * slopes[k]; });
    const float per_cap = of_.soft_cap == 0 ? 0.0F : 1 / of_.soft_cap;
    independent_loop(seen.size, [=, scale = of_.scale](std::size_t k) {
      const float bent = scores[k] * per_cap;
      slopes[k] = weights[k] * (slopes[k] - mean) * (scale * (1 - bent * bent));
      scores[k] = weights[k];
    });
    if (drops()) multiply_by_factors(scores, seen.size);
  }

  const AttentionOperands<float, Stream>& of_;
  AttentionBlock block_;
  std::size_t head_;
  StridedRows<float> scores_;
  StridedRows<float> slopes_;
  float* weights_;
  float* factors_;
};

}  // namespace detail::onednn

/// Attention of float; see AttentionKernel. For 64 or 128 queries at a time it holds the scores of
/// one head by all keys from the first to the last that one of them sees, so memory is linear in
/// the sequence, and products outside the mask are mostly not computed. Backward computes scores
/// again, and has five products. Where the mask cuts through a block a weight is 0, not skipped: a
/// NaN or an infinity of a token reaches its block. The library's threads compute products; one
/// thread computes the rest. Does not allocate in shardwise once a call was as large. Throws
/// backend_error if the library fails.
/// source   Dao 2023 (FlashAttention-2), for the order of the five products
template <std::same_as<float> T>
class OneDnn::Attention {
 public:
  ///@{
  /// As `AttentionKernel` says.
  explicit Attention(OneDnn& backend) : backend_(&backend) {}

  template <class Stream>
  void forward(const detail::AttentionOperands<T, Stream>& of, T* y) {
    run(of, [=](const auto& part) { part.forward(y); });
  }

  template <class Stream>
  void backward(const detail::AttentionOperands<T, Stream>& of, const T* dy, T* dq, T* dk, T* dv) {
    const std::size_t keys = of.key_at(of.tokens.keys.count(), 0);
    for (T* gradient : {dk, dv})
      if (gradient != nullptr) std::fill_n(gradient, keys, T(0));
    run(of, [=](const auto& part) { part.backward(dy, dq, dk, dv); });
  }
  ///@}

 private:
  template <class Stream, class F>
  void run(const detail::AttentionOperands<T, Stream>& of, const F& f) {
    if (of.heads.size == 0) return;
    const detail::onednn::ThreadLimit limit(backend_->threads_);
    const detail::onednn::AttentionPanels panels(backend_->session_.scratch(), of.tokens);
    detail::onednn::for_each_block(of.tokens, [&](const detail::onednn::AttentionBlock& block) {
      for (std::size_t head = 0; head < of.heads.queries; ++head)
        f(detail::onednn::AttentionOfHead<Stream>(of, panels, block, head));
    });
  }

  OneDnn* backend_;
};

}  // namespace shardwise
