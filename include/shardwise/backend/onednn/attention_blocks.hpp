#pragma once
// Blocks of queries, and the keys that each sees.

#include <algorithm>
#include <cstddef>
#include <limits>

#include "shardwise/backend/attention.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::onednn {

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

/// The most rows of a block.
inline constexpr std::size_t most_rows_of_block = 128;

/// A block of few queries computes few products of which a causal attention needs none; one of many
/// reads keys less often.
constexpr std::size_t rows_of_block(const AttentionTokens& tokens) {
  return std::min(tokens.causal ? most_rows_of_block / 2 : most_rows_of_block, tokens.queries.here);
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

}  // namespace shardwise::detail::onednn
