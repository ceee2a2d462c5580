#pragma once
// Attention by plain loops, for the backends of every dtype. Memory is linear in the sequence.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// In place of a random stream where nothing is dropped.
struct NoDraws {
  constexpr float uniform(std::uint64_t) const { return 0; }
};

/// The factor of a weight after the softmax: 0 with this probability, else 1 / (1 - probability).
/// It is drawn by sample of the step, query row, head and key row, all counted over all ranks.
template <class Stream>
struct WeightDropout {
  Stream stream;
  double probability = 0;
  /// Rows of the earlier batches of this step, if they have as many rows in a sample as this one.
  std::uint64_t first_row = 0;

  template <class A>
  constexpr A factor(const AttentionTokens& tokens, const AttentionHeads& heads, std::size_t row,
                     std::size_t head, std::size_t key) const {
    if (probability == 0) return A(1);
    const std::uint64_t query = first_row + tokens.queries.global(row);
    const std::uint64_t of_head = query * heads.all + heads.first + head;
    const float u =
        stream.uniform(of_head * tokens.keys.length + tokens.keys.global(key) % tokens.keys.length);
    return static_cast<double>(u) < probability ? A(0) : static_cast<A>(1.0 / (1.0 - probability));
  }
};

template <class A, class T>
struct ProductTerm {
  const T* a;
  const T* b;
  constexpr A operator()(std::size_t i) const {
    return static_cast<A>(a[i]) * static_cast<A>(b[i]);
  }
};

template <class A, class T>
constexpr A inner_product(const T* a, const T* b, std::size_t n) {
  return lane_reduce(n, A(0), ProductTerm<A, T>{a, b}, Plus{});
}

/// The softmax of a row of scores: a weight is exp(score - highest) · inverse.
template <class A>
struct SoftmaxRow {
  A highest = 0;
  A inverse = 0;  ///< 1 / Σ exp(score - highest)
  A mean = 0;     ///< the mean, by weight, of the gradients of the weights; in backward only

  constexpr A weight(A score) const { return exponential(score - highest) * inverse; }
};

/// The operands of an attention; rows are [row, head, feature of the head].
template <class T, class Stream>
struct AttentionOperands {
  using A = accumulate_t<T>;

  AttentionTokens tokens;
  AttentionHeads heads;
  A scale;
  A soft_cap;
  WeightDropout<Stream> dropout;
  const T* q;
  const T* k;
  const T* v;

  ///@{
  /// The offset of a head of a row.
  constexpr std::size_t query_at(std::size_t row, std::size_t head) const {
    return (row * heads.queries + head) * heads.size;
  }
  constexpr std::size_t key_at(std::size_t row, std::size_t head) const {
    return (row * heads.keys + head) * heads.size;
  }
  ///@}

  constexpr A score(std::size_t row, std::size_t head, std::size_t key) const {
    const A product = scale * inner_product<A>(q + query_at(row, head),
                                               k + key_at(key, heads.key_of(head)), heads.size);
    return soft_cap == A(0) ? product : soft_cap * hyperbolic_tangent(product / soft_cap);
  }
  /// The slope of a score by q·k.
  constexpr A slope(A score) const {
    const A bent = soft_cap == A(0) ? A(0) : score / soft_cap;
    return scale * (A(1) - bent * bent);
  }
  constexpr A drawn(std::size_t row, std::size_t head, std::size_t key) const {
    return dropout.template factor<A>(tokens, heads, row, head, key);
  }

  /// Without `mean`.
  constexpr SoftmaxRow<A> softmax(std::size_t row, std::size_t head) const {
    const Interval seen = tokens.keys_of(row);
    A highest = -std::numeric_limits<A>::infinity(), sum = 0;
    for (std::size_t key = seen.offset; key < seen.end(); ++key) {
      const A s = score(row, head, key);
      if (s > highest) {
        sum = sum * exponential(highest - s) + A(1);
        highest = s;
      } else {
        sum += exponential(s - highest);
      }
    }
    return {highest, A(1) / sum};
  }
};

/// Features of a head that are summed at a time.
inline constexpr std::size_t attention_piece = 64;

/// to[d] = sums[d] for the features d of a head, in pieces: add(sums, first, count) sums the
/// features [first, first + count).
template <class A, class T, class Add>
constexpr void write_in_pieces(T* to, std::size_t size, const Add& add) {
  for (std::size_t first = 0; first < size; first += attention_piece) {
    std::array<A, attention_piece> sums{};
    const std::size_t count = std::min(attention_piece, size - first);
    add(sums, first, count);
    for (std::size_t d = 0; d < count; ++d) to[first + d] = static_cast<T>(sums[d]);
  }
}

/// sums[d] += factor · from[d].
template <class A, class T>
constexpr void add_scaled(std::array<A, attention_piece>& sums, A factor, const T* from,
                          std::size_t count) {
  for (std::size_t d = 0; d < count; ++d) sums[d] += factor * static_cast<A>(from[d]);
}

/// y[i] = Σ weight · v for row and head i; zeros for a row that sees nothing.
template <class T, class Stream>
struct AttentionForward {
  using A = accumulate_t<T>;
  AttentionOperands<T, Stream> of;
  T* y;

  constexpr void operator()(std::size_t i) const {
    const std::size_t row = i / of.heads.queries, head = i % of.heads.queries;
    const SoftmaxRow<A> softmax = of.softmax(row, head);
    const Interval seen = of.tokens.keys_of(row);
    write_in_pieces<A>(
        y + of.query_at(row, head), of.heads.size,
        [&](auto& sums, std::size_t first, std::size_t count) {
          for (std::size_t key = seen.offset; key < seen.end(); ++key)
            add_scaled(sums, softmax.weight(of.score(row, head, key)) * of.drawn(row, head, key),
                       of.v + of.key_at(key, of.heads.key_of(head)) + first, count);
        });
  }
};

/// The gradients of Σ y dy by a weight after the softmax, and by the product q·k.
template <class T, class Stream>
struct AttentionSlopes {
  using A = accumulate_t<T>;
  AttentionOperands<T, Stream> of;
  const T* dy;
  SoftmaxRow<A>* rows;  ///< [row, head]

  constexpr const SoftmaxRow<A>& softmax(std::size_t row, std::size_t head) const {
    return rows[row * of.heads.queries + head];
  }
  constexpr A of_weight(std::size_t row, std::size_t head, std::size_t key) const {
    return of.drawn(row, head, key) * inner_product<A>(dy + of.query_at(row, head),
                                                       of.v + of.key_at(key, of.heads.key_of(head)),
                                                       of.heads.size);
  }
  constexpr A of_product(std::size_t row, std::size_t head, std::size_t key) const {
    const A score = of.score(row, head, key);
    const SoftmaxRow<A>& s = softmax(row, head);
    return s.weight(score) * (of_weight(row, head, key) - s.mean) * of.slope(score);
  }
};

/// For row and head i: its softmax, which the keys read afterwards, and dq[i] = Σ slope · k.
template <class T, class Stream>
struct AttentionBackwardQueries {
  using A = accumulate_t<T>;
  AttentionSlopes<T, Stream> slopes;
  T* dq;

  constexpr void operator()(std::size_t i) const {
    const auto& of = slopes.of;
    const std::size_t row = i / of.heads.queries, head = i % of.heads.queries;
    const Interval seen = of.tokens.keys_of(row);
    SoftmaxRow<A> softmax = of.softmax(row, head);
    for (std::size_t key = seen.offset; key < seen.end(); ++key)
      softmax.mean += softmax.weight(of.score(row, head, key)) * slopes.of_weight(row, head, key);
    slopes.rows[i] = softmax;
    if (dq == nullptr) return;
    write_in_pieces<A>(dq + of.query_at(row, head), of.heads.size,
                       [&](auto& sums, std::size_t first, std::size_t count) {
                         for (std::size_t key = seen.offset; key < seen.end(); ++key)
                           add_scaled(sums, slopes.of_product(row, head, key),
                                      of.k + of.key_at(key, of.heads.key_of(head)) + first, count);
                       });
  }
};

/// For key row and key head i: dk[i] = Σ slope · q and dv[i] = Σ weight · dy, over all queries in
/// memory that see it.
template <class T, class Stream>
struct AttentionBackwardKeys {
  using A = accumulate_t<T>;
  AttentionSlopes<T, Stream> slopes;
  T* dk;
  T* dv;

  constexpr void operator()(std::size_t i) const {
    const auto& of = slopes.of;
    const std::size_t key = i / of.heads.keys, key_head = i % of.heads.keys;
    const std::size_t at = of.key_at(key, key_head);
    if (dk != nullptr) {
      write_in_pieces<A>(dk + at, of.heads.size,
                         [&](auto& sums, std::size_t first, std::size_t count) {
                           for_each_query(key, key_head, [&](std::size_t row, std::size_t head) {
                             add_scaled(sums, slopes.of_product(row, head, key),
                                        of.q + of.query_at(row, head) + first, count);
                           });
                         });
    }
    if (dv != nullptr) {
      write_in_pieces<A>(
          dv + at, of.heads.size, [&](auto& sums, std::size_t first, std::size_t count) {
            for_each_query(key, key_head, [&](std::size_t row, std::size_t head) {
              const A weight = slopes.softmax(row, head).weight(of.score(row, head, key));
              add_scaled(sums, weight * of.drawn(row, head, key),
                         slopes.dy + of.query_at(row, head) + first, count);
            });
          });
    }
  }

 private:
  template <class F>
  constexpr void for_each_query(std::size_t key, std::size_t key_head, const F& f) const {
    const Interval rows = slopes.of.tokens.queries_of(key);
    const Interval heads = slopes.of.heads.readers_of(key_head);
    for (std::size_t row = rows.offset; row < rows.end(); ++row)
      for (std::size_t head = heads.offset; head < heads.end(); ++head) f(row, head);
  }
};

}  // namespace shardwise::detail
