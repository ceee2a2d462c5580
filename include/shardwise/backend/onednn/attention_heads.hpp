#pragma once
// The attention of the heads of a call, in blocks of queries.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/onednn/attention_blocks.hpp"
#include "shardwise/backend/onednn/attention_rows.hpp"
#include "shardwise/backend/onednn/scratch.hpp"
#include "shardwise/backend/onednn/session.hpp"
#include "shardwise/backend/onednn/strided_product.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::onednn {

/// What the attentions of one backend object keep between calls: products of bf16, and memory as
/// large as the largest call needed. It is linear in the sequence, because a block has a bounded
/// number of queries.
struct AttentionMemory {
  StridedProducts products;
  Scratch scores, gradients, result;  // of a block
  Scratch weights, slopes;            // scores and gradients of a block, in the dtype of products
  Scratch bends, factors;             // of a row
  Scratch q, dy;                      // of a block, in the dtype of products
  Scratch k, v;                       // of a key head, in the dtype of products
  Scratch k_transposed, v_transposed;
  Scratch dk, dv;  // of a key head, before they are rounded
};

/// Memory for numbers of type T.
template <class T>
T* reserve(Scratch& memory, std::size_t count) {
  return static_cast<T*>(memory.reserve(count * sizeof(T)));
}

/// One key head after another, with the query heads that read it. T is the dtype of tensors, Factor
/// that of products: T, or float for a processor that does not multiply T. Scores, their softmax
/// and all sums are float.
template <class Factor, class T, class Operands>
class AttentionOfHeads {
 public:
  AttentionOfHeads(Session& session, AttentionMemory& memory, const Operands& of)
      : session_(session), memory_(memory), of_(of) {
    scores_ = reserve<float>(memory.scores, rows_of_block(of.tokens) * stride_);
    weights_ = rounded(memory.weights, scores_);
    bends_ = reserve<float>(memory.bends, stride_);
    factors_ = reserve<float>(memory.factors, stride_);
    result_ = reserve<float>(memory.result, rows_of_block(of.tokens) * of.heads.size);
  }

  void forward(T* y) {
    for (std::size_t key_head = 0; key_head < of_.heads.keys; ++key_head) {
      k_transposed_ = transposed(memory_.k_transposed, of_keys(of_.k, key_head));
      v_ = factors_of(memory_.v, of_keys(of_.v, key_head));
      for_each_part(key_head, [&](const Part& part) { forward(part, y); });
    }
  }

  void backward(const T* dy, T* dq, T* dk, T* dv) {
    gradients_ = reserve<float>(memory_.gradients, rows_of_block(of_.tokens) * stride_);
    slopes_ = rounded(memory_.slopes, gradients_);
    for (std::size_t key_head = 0; key_head < of_.heads.keys; ++key_head) {
      k_transposed_ = transposed(memory_.k_transposed, of_keys(of_.k, key_head));
      v_transposed_ = transposed(memory_.v_transposed, of_keys(of_.v, key_head));
      k_ = factors_of(memory_.k, of_keys(of_.k, key_head));
      const Sums of_k = zeros(memory_.dk, dk), of_v = zeros(memory_.dv, dv);
      for_each_part(key_head, [&](const Part& part) { backward(part, dy, dq, of_k, of_v); });
      if (dk != nullptr) write(of_k, of_keys(dk, key_head));
      if (dv != nullptr) write(of_v, of_keys(dv, key_head));
    }
  }

 private:
  using Sums = StridedRows<float>;
  using Factors = StridedRows<const Factor>;

  /// The rows of a block, for one head.
  struct Part {
    std::size_t head;
    AttentionBlock block;
  };

  template <class F>
  void for_each_part(std::size_t key_head, const F& f) const {
    const Interval readers = of_.heads.readers_of(key_head);
    for (std::size_t head = readers.offset; head < readers.end(); ++head)
      for_each_block(of_.tokens, [&](const AttentionBlock& block) { f(Part{head, block}); });
  }

  void forward(const Part& part, T* y) {
    const StridedRows<T> out = of_queries(y, part);
    if (part.block.keys.size == 0) return clear(out);
    const Sums scores = panel(scores_, part);
    const StridedRows<Factor> weights = panel(weights_, part);
    const AttentionRows<Factor, Operands> rows = rows_of(part);
    std::array<float, most_rows_of_block> inverses;
    multiply(product, factors_of(memory_.q, of_queries(of_.q, part)),
             seen_by_feature(k_transposed_, part), scores);
    for (std::size_t row = 0; row < out.rows; ++row)
      inverses[row] = rows.weigh(row, scores.row(row), weights.row(row));
    multiply(product, weights, seen(v_, part), result(part));
    for (std::size_t row = 0; row < out.rows; ++row)
      write_scaled(result(part).row(row), out.columns, inverses[row], out.row(row));
  }

  /// Adds to `of_k` and `of_v`.
  void backward(const Part& part, const T* dy, T* dq, Sums of_k, Sums of_v) {
    if (part.block.keys.size == 0) {
      if (dq != nullptr) clear(of_queries(dq, part));
      return;
    }
    const Sums scores = panel(scores_, part), gradients = panel(gradients_, part);
    const StridedRows<Factor> weights = panel(weights_, part), slopes = panel(slopes_, part);
    const Factors q = factors_of(memory_.q, of_queries(of_.q, part));
    const Factors by_y = factors_of(memory_.dy, of_queries(dy, part));
    const AttentionRows<Factor, Operands> rows = rows_of(part);
    multiply(product, q, seen_by_feature(k_transposed_, part), scores);
    multiply(product, by_y, seen_by_feature(v_transposed_, part), gradients);
    for (std::size_t row = 0; row < q.rows; ++row)
      rows.slope(row, scores.row(row), gradients.row(row), weights.row(row), slopes.row(row));
    if (dq != nullptr) {
      multiply(product, slopes, seen(k_, part), result(part));
      write(result(part), of_queries(dq, part));
    }
    if (of_k.data != nullptr) multiply(sum_over_queries, slopes, q, seen(of_k, part));
    if (of_v.data != nullptr) multiply(sum_over_queries, weights, by_y, seen(of_v, part));
  }

  static constexpr StridedForm product{Reads::plain, Write::replace};
  static constexpr StridedForm sum_over_queries{Reads::transpose, Write::add};

  void multiply(const StridedForm& form, Factors a, Factors b, Sums c) {
    memory_.products.run(session_, form, a, b, c);
  }

  AttentionRows<Factor, Operands> rows_of(const Part& part) const {
    return {of_, part.block, part.head, bends_, factors_};
  }

  ///@{
  /// The rows of a tensor that a part has, and those of one of its key heads.
  template <class U>
  StridedRows<U> of_queries(U* tensor, const Part& part) const {
    return {tensor + of_.query_at(part.block.queries.offset, part.head), part.block.queries.size,
            of_.heads.size, of_.heads.queries * of_.heads.size};
  }
  template <class U>
  StridedRows<U> of_keys(U* tensor, std::size_t key_head) const {
    const std::size_t rows = of_.tokens.keys.count();
    return {rows == 0 ? tensor : tensor + of_.key_at(0, key_head), rows, of_.heads.size,
            of_.heads.keys * of_.heads.size};
  }
  template <class U>
  static StridedRows<U> seen(StridedRows<U> keys, const Part& part) {
    return keys.neighbours(part.block.keys);
  }
  static Factors seen_by_feature(Factors transposed, const Part& part) {
    return transposed.neighbouring_columns(part.block.keys);
  }
  ///@}

  ///@{
  /// A part of the memory of a block.
  template <class U>
  StridedRows<U> panel(U* data, const Part& part) const {
    return {data, part.block.queries.size, part.block.keys.size, stride_};
  }
  Sums result(const Part& part) const {
    return {result_, part.block.queries.size, of_.heads.size, of_.heads.size};
  }
  ///@}

  /// Where a panel is rounded to: itself, or memory of its own.
  Factor* rounded(Scratch& memory, float* panel) {
    if constexpr (std::same_as<Factor, float>) {
      return panel;
    } else {
      return reserve<Factor>(memory, rows_of_block(of_.tokens) * stride_);
    }
  }

  /// The same numbers in the dtype of products: in place, or a copy.
  Factors factors_of(Scratch& memory, StridedRows<const T> rows) {
    if constexpr (std::same_as<Factor, T>) {
      return rows;
    } else {
      const StridedRows<Factor> copy{reserve<Factor>(memory, rows.rows * rows.columns), rows.rows,
                                     rows.columns, rows.columns};
      write(rows, copy);
      return copy;
    }
  }

  /// The transpose, in the dtype of products. Of rows that lie apart, the library would make one
  /// for each block of queries, which takes a quarter as long as the products of 64 queries. In
  /// tiles, since a core reads 16 rows from memory at once, but not one row and then the next.
  Factors transposed(Scratch& memory, StridedRows<const T> rows) {
    constexpr std::size_t tile = 16;
    const std::size_t stride = stride_of(rows.rows);
    const StridedRows<Factor> to{reserve<Factor>(memory, rows.columns * stride), rows.columns,
                                 rows.rows, stride};
    for (std::size_t first = 0; first < rows.rows; first += tile)
      for (std::size_t c = 0; c < rows.columns; ++c)
        for (std::size_t r = first; r < std::min(first + tile, rows.rows); ++r)
          to.row(c)[r] = static_cast<Factor>(rows.row(r)[c]);
    return to;
  }

  /// Zeros for all keys of a head; nothing if nobody needs the gradient.
  Sums zeros(Scratch& memory, const T* gradient) const {
    if (gradient == nullptr) return {};
    const std::size_t rows = of_.tokens.keys.count(), size = of_.heads.size;
    const Sums sums{reserve<float>(memory, rows * size), rows, size, size};
    std::fill_n(sums.data, rows * size, 0.0F);
    return sums;
  }

  template <class From, class To>
  static void write(StridedRows<From> from, StridedRows<To> to) {
    for (std::size_t r = 0; r < from.rows; ++r)
      write_scaled(from.row(r), from.columns, 1.0F, to.row(r));
  }
  static void clear(StridedRows<T> m) {
    for (std::size_t r = 0; r < m.rows; ++r) std::fill_n(m.row(r), m.columns, T(0));
  }

  /// An odd multiple of 16, so that rows begin in different sets of a cache.
  static std::size_t stride_of(std::size_t columns) { return (((columns + 15) / 16) | 1) * 16; }

  Session& session_;
  AttentionMemory& memory_;
  const Operands& of_;
  std::size_t stride_ = stride_of(of_.tokens.keys.here);
  float* scores_ = nullptr;
  float* gradients_ = nullptr;
  Factor* weights_ = nullptr;
  Factor* slopes_ = nullptr;
  float* bends_ = nullptr;
  float* factors_ = nullptr;
  float* result_ = nullptr;
  Factors k_{};
  Factors v_{};
  Factors k_transposed_{};
  Factors v_transposed_{};
};

}  // namespace shardwise::detail::onednn
