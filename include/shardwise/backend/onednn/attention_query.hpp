#pragma once
// The attention of one query in each sample, as where text is written token by token.

#include <algorithm>
#include <bit>
#include <cstddef>

#include "shardwise/backend/onednn/attention_blocks.hpp"
#include "shardwise/backend/onednn/attention_heads.hpp"
#include "shardwise/backend/onednn/attention_rows.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/vector_dot.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise::detail::onednn {

/// All heads of a query at once. What takes time is to read keys and values from memory, so they
/// are read once, in the order in which they lie there, each some rows after it was asked for, and
/// not copied as products of blocks need it. Scores, their softmax and all sums are float. Memory
/// for scores is that of the next power of two of keys, so that it is not taken anew for each token
/// of a text.
template <class T, class Operands>
class AttentionOfQuery {
 public:
  AttentionOfQuery(AttentionMemory& memory, const Operands& of)
      : of_(of),
        stride_(of.tokens.keys.here),
        q_(reserve<float>(memory.q, of.heads.queries * of.heads.size)),
        scores_(reserve<float>(memory.scores, of.heads.queries * std::bit_ceil(stride_))),
        sums_(reserve<float>(memory.result, of.heads.queries * of.heads.size)),
        factors_(reserve<float>(memory.factors, std::bit_ceil(stride_))) {}

  void forward(T* y) {
    for (std::size_t row = 0; row < of_.tokens.queries.count(); ++row) {
      const AttentionBlock block = attention_block(of_.tokens, {row, 1});
      write_scaled(of_.q + of_.query_at(row, 0), of_.heads.queries * of_.heads.size, 1.0F, q_);
      in_fused_vectors([&] { multiply_keys(block); });
      for (std::size_t head = 0; head < of_.heads.queries; ++head) weigh(block, head);
      in_fused_vectors([&] { add_values(block); });
      write_scaled(sums_, of_.heads.queries * of_.heads.size, 1.0F, y + of_.query_at(row, 0));
    }
  }

 private:
  float* scores(std::size_t head) const { return scores_ + head * stride_; }

  /// Scores become products q·k.
  void multiply_keys(const AttentionBlock& block) const {
    for_each_row(block, of_.k, [&](std::size_t head, std::size_t k, const T* key) {
      scores(head)[k] = vector_dot(q_ + head * of_.heads.size, key, of_.heads.size);
    });
  }

  /// Products become weights.
  void weigh(const AttentionBlock& block, std::size_t head) const {
    const AttentionRows<float, Operands> rows{of_, block, head, nullptr, factors_};
    const float inverse = rows.weigh(0, scores(head), scores(head));
    independent_loop(block.keys.size,
                     [weights = scores(head), inverse](std::size_t k) { weights[k] *= inverse; });
  }

  /// Sums become those of values by weight.
  void add_values(const AttentionBlock& block) const {
    std::fill_n(sums_, of_.heads.queries * of_.heads.size, 0.0F);
    for_each_row(block, of_.v, [&](std::size_t head, std::size_t k, const T* value) {
      plain_loop(of_.heads.size,
                 [to = sums_ + head * of_.heads.size, weight = scores(head)[k],
                  value](std::size_t d) { to[d] += weight * static_cast<float>(value[d]); });
    });
  }

  /// Calls f(query head, number in the block, row of its head) for keys or values, token by token.
  template <class F>
  void for_each_row(const AttentionBlock& block, const T* all, const F& f) const {
    constexpr std::size_t ahead = 16;  // tokens: what arrives in the time that they take
    const std::size_t of_token = of_.key_at(1, 0);
    const T* token = all + of_.key_at(block.keys.offset, 0);
    for (std::size_t k = 0; k < block.keys.size; ++k, token += of_token) {
      if (k + ahead < block.keys.size)
        for (std::size_t i = 0; i < of_token; i += 64 / sizeof(T))
          __builtin_prefetch(token + ahead * of_token + i);
      for (std::size_t head = 0; head < of_.heads.queries; ++head)
        f(head, k, token + of_.key_at(0, of_.heads.key_of(head)));
    }
  }

  const Operands& of_;
  std::size_t stride_;
  float* q_;        // [query head, feature]
  float* scores_;   // [query head, key]
  float* sums_;     // [query head, feature]
  float* factors_;  // of dropout, for a row
};

}  // namespace shardwise::detail::onednn
