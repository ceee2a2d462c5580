#pragma once
// Attention by plain loops, for the backends of every dtype. Memory is linear in the sequence.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/independent_loop.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/philox.hpp"

namespace shardwise::detail {

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
    return factor_of<A>(stream.uniform(number(tokens, heads, row, head, key)));
  }

  /// factors[k] = factor of the key `keys.offset` + k; all are keys of one sample. On the host.
  template <class A>
  void put_factors(const AttentionTokens& tokens, const AttentionHeads& heads, std::size_t row,
                   std::size_t head, Interval keys, A* factors) const {
    const std::uint64_t first = number(tokens, heads, row, head, keys.offset);
    in_widest_vectors([&] {
      stream.for_each_uniform_in_any_order(first, first + keys.size,
                                           [*this, first, factors](std::uint64_t i, float u) {
                                             factors[i - first] = factor_of<A>(u);
                                           });
    });
  }

 private:
  /// The number of its random number; that of the next key of the sample is the next one.
  constexpr std::uint64_t number(const AttentionTokens& tokens, const AttentionHeads& heads,
                                 std::size_t row, std::size_t head, std::size_t key) const {
    const std::uint64_t query = first_row + tokens.queries.global(row);
    const std::uint64_t of_head = query * heads.all + heads.first + head;
    return of_head * tokens.keys.length + tokens.keys.global(key) % tokens.keys.length;
  }

  template <class A>
  constexpr A factor_of(float u) const {
    return select(u >= least_uniform(probability), static_cast<A>(1.0 / (1.0 - probability)), A(0));
  }
};

/// The softmax of a row of scores: a weight is exp(score - highest) · inverse.
template <class A>
struct SoftmaxRow {
  A highest = 0;
  A inverse = 0;  ///< 1 / Σ exp(score - highest)
  A mean = 0;     ///< the mean, by weight, of the gradients of the weights; in backward only

  constexpr A weight(A score) const { return exponential(score - highest) * inverse; }
};

/// Features of a head that are summed at a time.
inline constexpr std::size_t attention_piece = 64;

/// to[d] = sums[d] for the features d of a head, in pieces: add(sums, first, count) sums the
/// features [first, first + count).
template <class A, class T, class Add>
constexpr void write_in_pieces(T* to, std::size_t size, const Add& add) {
  for (std::size_t first = 0; first < size; first += attention_piece) {
    std::array<A, attention_piece> sums{};
    const std::size_t count = std::min(std::size_t{attention_piece}, size - first);
    add(sums, first, count);
    for (std::size_t d = 0; d < count; ++d) to[first + d] = static_cast<T>(sums[d]);
  }
}

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
    const A product =
        scale * dot(q + query_at(row, head), k + key_at(key, heads.key_of(head)), heads.size);
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
    A highest = std::numeric_limits<A>::lowest();  // finite: a first score may be -infinity
    A sum = 0;
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

  /// to[d] = Σ factor(key) · values[key, d] over the keys that a row sees, for one of its heads.
  template <class Factor>
  constexpr void sum_over_keys(std::size_t row, std::size_t head, const T* values,
                               const Factor& factor, T* to) const {
    const Interval seen = tokens.keys_of(row);
    write_in_pieces<A>(to + query_at(row, head), heads.size,
                       [&](auto& sums, std::size_t first, std::size_t count) {
                         for (std::size_t key = seen.offset; key < seen.end(); ++key)
                           add_scaled(sums.data(), factor(key),
                                      values + key_at(key, heads.key_of(head)) + first, count);
                       });
  }

  /// to[d] = Σ factor(row, head) · values[row, head, d] over the queries in memory that see a key,
  /// for one of its heads.
  template <class Factor>
  constexpr void sum_over_queries(std::size_t key, std::size_t key_head, const T* values,
                                  const Factor& factor, T* to) const {
    const Interval rows = tokens.queries_of(key);
    const Interval readers = heads.readers_of(key_head);
    write_in_pieces<A>(to + key_at(key, key_head), heads.size,
                       [&](auto& sums, std::size_t first, std::size_t count) {
                         for (std::size_t row = rows.offset; row < rows.end(); ++row)
                           for (std::size_t h = readers.offset; h < readers.end(); ++h)
                             add_scaled(sums.data(), factor(row, h),
                                        values + query_at(row, h) + first, count);
                       });
  }
};

/// y[i] = Σ weight · v for row and head i; zeros for a row that sees nothing.
template <class T, class Stream>
struct AttentionForward {
  using A = accumulate_t<T>;
  AttentionOperands<T, Stream> of;
  T* y;

  constexpr void operator()(std::size_t i) const {
    const std::size_t row = i / of.heads.queries, head = i % of.heads.queries;
    const SoftmaxRow<A> softmax = of.softmax(row, head);
    const auto weight = [&](std::size_t key) {
      return softmax.weight(of.score(row, head, key)) * of.drawn(row, head, key);
    };
    of.sum_over_keys(row, head, of.v, weight, y);
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
    return of.drawn(row, head, key) * dot(dy + of.query_at(row, head),
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
    const auto slope = [&](std::size_t key) { return slopes.of_product(row, head, key); };
    if (dq != nullptr) of.sum_over_keys(row, head, of.k, slope, dq);
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
    const auto slope = [&](std::size_t row, std::size_t head) {
      return slopes.of_product(row, head, key);
    };
    const auto weight = [&](std::size_t row, std::size_t head) {
      return slopes.softmax(row, head).weight(of.score(row, head, key)) * of.drawn(row, head, key);
    };
    if (dk != nullptr) of.sum_over_queries(key, key_head, of.q, slope, dk);
    if (dv != nullptr) of.sum_over_queries(key, key_head, slopes.dy, weight, dv);
  }
};

/// y for all rows and heads in memory, by loops of the backend.
template <class Backend, class T, class Stream>
void attention_by_loops(Backend& backend, const AttentionOperands<T, Stream>& of, T* y) {
  backend.for_each(of.tokens.queries.count() * of.heads.queries,
                   AttentionForward<T, Stream>{of, y});
}

/// Bytes of scratch memory for the gradients of an attention.
template <class T, class Stream>
constexpr std::size_t softmax_bytes(const AttentionOperands<T, Stream>& of) {
  return of.tokens.queries.count() * of.heads.queries * sizeof(SoftmaxRow<accumulate_t<T>>);
}

/// Slopes of an attention, with scratch memory of `softmax_bytes`.
template <class T, class Stream>
AttentionSlopes<T, Stream> attention_slopes(const AttentionOperands<T, Stream>& of, const T* dy,
                                            void* memory) {
  return {of, dy, static_cast<SoftmaxRow<accumulate_t<T>>*>(memory)};
}

/// dq, dk and dv for all rows and heads in memory, by loops of the backend; those that are null are
/// left out.
template <class Backend, class T, class Stream>
void attention_gradients_by_loops(Backend& backend, const AttentionSlopes<T, Stream>& slopes, T* dq,
                                  T* dk, T* dv) {
  const AttentionTokens& tokens = slopes.of.tokens;
  const AttentionHeads& heads = slopes.of.heads;
  backend.for_each(tokens.queries.count() * heads.queries,
                   AttentionBackwardQueries<T, Stream>{slopes, dq});
  backend.for_each(tokens.keys.count() * heads.keys,
                   AttentionBackwardKeys<T, Stream>{slopes, dk, dv});
}

}  // namespace shardwise::detail
