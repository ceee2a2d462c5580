#pragma once
// Attention of tokens that follow those of a cache.

#include <algorithm>
#include <cstddef>

#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// The keys or values of all sequences of a cache, [sequences, tokens, a row].
template <class T>
struct CachedRows {
  T* data;
  std::size_t tokens;  ///< that there is room for in each sequence
  std::size_t row;     ///< elements

  /// The row of a token.
  T* at(std::size_t sequence, std::size_t token) const {
    return data + (sequence * tokens + token) * row;
  }

  /// Adds the rows of a segment of a batch.
  template <class Backend>
  void add(Backend& backend, const Segment& one, const T* batch) const {
    copy(backend, batch + one.row * row, one.rows * row, at(one.sequence, one.position));
  }
};

/// The operands of `rows`, which are the rank's rows of queries in a segment: one sample, of which
/// the queries are the last tokens, and the keys all that one of them sees.
template <class T, class Stream>
AttentionOperands<T, Stream> of_segment(const AttentionOperands<T, Stream>& of, const Segment& one,
                                        Interval rows, const CachedRows<T>& keys,
                                        const CachedRows<T>& values) {
  const std::size_t token = one.position + of.tokens.queries.global(rows.offset) - one.row;
  const std::size_t end = token + rows.size, window = of.tokens.window;
  const std::size_t begin = window == 0 ? 0 : token - std::min(token, window - 1);
  AttentionOperands<T, Stream> here = of;
  here.tokens.queries = {1, rows.size, end, 0, token};
  here.tokens.keys = {1, end - begin, end, 0, begin};
  here.tokens.sequences = Sequences(end);
  here.q = of.q + of.query_at(rows.offset, 0);
  here.k = keys.at(one.sequence, begin);
  here.v = values.at(one.sequence, begin);
  return here;
}

}  // namespace shardwise::detail
