#pragma once
// One call of an attention: the rows and heads in memory, and what each row sees.

#include <concepts>
#include <cstddef>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/sequences.hpp"

namespace shardwise {

/// The heads of one call. A head is `size` neighbouring features; query head h of the model reads
/// key head h / readers, rounded down.
struct AttentionHeads {
  std::size_t size = 0;       ///< features of a head
  std::size_t readers = 1;    ///< query heads that read one key head
  std::size_t all = 0;        ///< query heads of all ranks
  std::size_t queries = 0;    ///< query heads in memory
  std::size_t first = 0;      ///< the number of the first of them
  std::size_t keys = 0;       ///< key heads in memory
  std::size_t first_key = 0;  ///< the number of the first of them

  /// The key head, among those in memory, that query head `head` in memory reads.
  constexpr std::size_t key_of(std::size_t head) const {
    return (first + head) / readers - first_key;
  }
  /// The query heads in memory that read key head `key` in memory.
  constexpr Interval readers_of(std::size_t key) const {
    const Interval all_readers{(first_key + key) * readers, readers};
    const Interval here = detail::overlap(all_readers, {first, queries});
    return {here.size == 0 ? 0 : here.offset - first, here.size};
  }
};

/// The tokens of one call, and what each of them sees: the tokens of its own segment, if `causal`
/// up to itself, and of these, if `window` is not 0, the last `window` ones.
struct AttentionTokens {
  TokenRows queries;       ///< rows of queries in memory
  TokenRows keys;          ///< rows of keys and values in memory
  Sequences sequences;     ///< of the whole batch
  bool causal = true;      ///< whether a token sees no later ones
  std::size_t window = 0;  ///< tokens that a token sees, with itself; 0 for all

  /// The rows of keys in memory that row `row` of queries sees.
  constexpr Interval keys_of(std::size_t row) const {
    const std::size_t token = queries.global(row);
    const Sequences::Row place = sequences[token];
    if (place.is_padding()) return {};
    std::size_t begin = place.begin;
    if (window != 0 && token - begin >= window) begin = token + 1 - window;
    return keys.local(row / queries.here, begin, causal ? token + 1 : place.end);
  }

  /// The rows of queries in memory that see row `row` of keys.
  constexpr Interval queries_of(std::size_t row) const {
    const std::size_t token = keys.global(row);
    const Sequences::Row place = sequences[token];
    if (place.is_padding()) return {};
    std::size_t end = place.end;
    if (window != 0 && end - token > window) end = token + window;
    return queries.local(row / keys.here, causal ? token : place.begin, end);
  }
};

/// The score of a query and a key: s = scale · q·k, and with a soft cap c then c · tanh(s / c).
struct AttentionScores {
  double scale = 0;     ///< 0 for 1 / sqrt(features of a head)
  double soft_cap = 0;  ///< 0 for none
};

namespace detail {

/// The products of one attention, see `AttentionBackend`.
template <class K, class T, class Operands>
concept AttentionKernel = requires(K& kernel, const Operands& of, const T* in, T* out) {
  kernel.forward(of, out);
  kernel.backward(of, in, out, out, out);
};

}  // namespace detail

/// A backend with a kernel of its own for attention in the dtype T, which it makes for each call:
/// `B::Attention<T>(backend)`. An attention runs by plain loops on other backends. `of` are the
/// operands: `tokens`, `heads`, `scale`, `soft_cap`, `dropout`, and the tensors q [rows, query
/// heads, size], k and v [key rows, key heads, size], all row-major and dense:
///
///     kernel.forward(of, y)
///         y = softmax(scores) v for each head, zeros for rows that see nothing
///     kernel.backward(of, dy, dq, dk, dv)
///         dq, dk, dv = the gradients of Σ y dy over the rows and heads in memory
///
/// Any extent may be zero. dq, dk and dv may be null, and share no memory with the operands.
/// valid: `AttentionBackend<OneDnn, float, Operands>` with the operands that `Attend` gives
template <class B, class T, class Operands>
concept AttentionBackend = Backend<B, T> && requires {
  typename B::template Attention<T>;
  requires detail::AttentionKernel<typename B::template Attention<T>, T, Operands>;
  requires std::constructible_from<typename B::template Attention<T>, B&>;
};

}  // namespace shardwise
