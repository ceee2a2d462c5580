#pragma once
// Attentions of a rank, with numbers for them, and what plain loops in double make of these.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "support/largest_difference.hpp"

namespace backend_test {

/// An attention of a rank: what each row sees, and the heads in memory.
struct AttentionProblem {
  shardwise::AttentionTokens tokens;
  shardwise::AttentionHeads heads;
  double soft_cap = 0;
  double dropped = 0;
};

/// Two samples of `length` rows, of which the rank has `here` queries from row `first` on.
inline shardwise::AttentionTokens tokens_of(std::size_t length, bool causal, std::size_t window = 0,
                                            std::size_t first = 0,
                                            std::size_t here = shardwise::dynamic) {
  const std::size_t rows = here == shardwise::dynamic ? length : here;
  return {{2, rows, length, 0, first},
          {2, length, length, 0, 0},
          shardwise::Sequences(length),
          causal,
          window};
}

/// The rank has the query heads from `first` on, and the key heads that they read.
inline shardwise::AttentionHeads heads_of(std::size_t size, std::size_t readers, std::size_t first,
                                          std::size_t count) {
  const std::size_t first_key = first / readers;
  const std::size_t keys = count == 0 ? 0 : (first + count - 1) / readers - first_key + 1;
  return {size, readers, first + count, count, first, keys, first_key};
}

/// The operands and results of a problem in T.
template <class T>
struct AttentionNumbers {
  std::vector<T> q, k, v, dy, y, dq, dk, dv;

  explicit AttentionNumbers(const AttentionProblem& p)
      : q(made(queries(p), 1)), k(made(keys(p), 2)), v(made(keys(p), 3)), dy(made(queries(p), 4)) {
    // Every result is assigned, so what was there before does not matter.
    for (auto* result : {&y, &dq}) result->assign(q.size(), T(7));
    for (auto* result : {&dk, &dv}) result->assign(k.size(), T(7));
  }

  auto operands(const AttentionProblem& p) const {
    return shardwise::detail::AttentionOperands<T, shardwise::RandomStream>{
        p.tokens,
        p.heads,
        static_cast<shardwise::accumulate_t<T>>(1 / std::sqrt(static_cast<double>(p.heads.size))),
        static_cast<shardwise::accumulate_t<T>>(p.soft_cap),
        {shardwise::RandomStream(shardwise::Seed{5}, 1, 2), p.dropped, 0},
        q.data(),
        k.data(),
        v.data()};
  }

 private:
  static std::size_t queries(const AttentionProblem& p) {
    return p.tokens.queries.count() * p.heads.queries * p.heads.size;
  }
  static std::size_t keys(const AttentionProblem& p) {
    return p.tokens.keys.count() * p.heads.keys * p.heads.size;
  }
  /// The same numbers in every T: steps of 1/32 from -2 to 2.
  static std::vector<T> made(std::size_t count, std::uint64_t tensor) {
    const shardwise::RandomStream random(shardwise::Seed{1}, 0, 0, tensor);
    std::vector<T> numbers(count);
    for (std::size_t i = 0; i < count; ++i)
      numbers[i] = static_cast<T>(std::floor(128 * random.uniform(i)) / 32 - 2);
    return numbers;
  }
};

inline AttentionNumbers<double> attention_by_loops(const AttentionProblem& p) {
  AttentionNumbers<double> n(p);
  const auto of = n.operands(p);
  shardwise::Reference loops;
  std::vector<std::byte> memory(shardwise::detail::softmax_bytes(of));
  shardwise::detail::attention_by_loops(loops, of, n.y.data());
  shardwise::detail::attention_gradients_by_loops(
      loops, shardwise::detail::attention_slopes(of, n.dy.data(), memory.data()), n.dq.data(),
      n.dk.data(), n.dv.data());
  return n;
}

/// The largest difference, over the largest number.
template <class T>
double error_of(const std::vector<T>& ours, const std::vector<double>& exact) {
  double largest = 1e-30;
  testing::Largest difference;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    const auto found = static_cast<shardwise::accumulate_t<T>>(ours[i]);
    difference.see(std::abs(static_cast<double>(found) - exact[i]));
  }
  return difference / largest;
}

}  // namespace backend_test
