#pragma once
// One call of the kernel of attention, without projections: heads of 64 features, one sample.

#include <array>
#include <cstddef>
#include <vector>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sequences.hpp"

namespace bench {

struct AttentionSizes {
  static constexpr std::size_t head = 64;

  std::size_t rows;
  bool causal;
  std::size_t heads;
  std::size_t key_heads;

  /// Heads of q, k, v and dy.
  std::array<std::size_t, 4> heads_of_operands() const {
    return {heads, key_heads, key_heads, heads};
  }
};

/// The operands and the results.
template <class T>
struct AttentionCall {
  /// numbers(i, heads) are the floats of q, k, v or dy.
  template <class F>
  AttentionCall(const AttentionSizes& s, const F& numbers) : sizes(s) {
    for (std::size_t i = 0; i < in.size(); ++i)
      for (const float number : numbers(i, sizes.heads_of_operands()[i]))
        in[i].push_back(static_cast<T>(number));
    y = dq = in[0];
    dk = dv = in[1];
  }

  auto operands() const {
    const shardwise::TokenRows all{1, sizes.rows, sizes.rows, 0, 0};
    return shardwise::detail::AttentionOperands<T, shardwise::RandomStream>{
        {all, all, shardwise::Sequences(sizes.rows), sizes.causal, 0},
        {sizes.head, sizes.heads / sizes.key_heads, sizes.heads, sizes.heads, 0, sizes.key_heads,
         0},
        0.125F,  // 1 / √64
        0,
        {shardwise::RandomStream(shardwise::Seed{1}, 0, 0), 0, 0},
        in[0].data(),
        in[1].data(),
        in[2].data()};
  }
  const T* dy() const { return in[3].data(); }

  AttentionSizes sizes;
  std::array<std::vector<T>, 4> in;  // q, k, v, dy
  std::vector<T> y, dq, dk, dv;
};

}  // namespace bench
