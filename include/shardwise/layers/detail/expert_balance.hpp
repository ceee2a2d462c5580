#pragma once
// The gradient of the balancing loss of a mixture of experts.

#include <algorithm>
#include <cstddef>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/detail/routing.hpp"
#include "shardwise/layout/token_rows.hpp"

namespace shardwise::detail {

/// The rows that a balancing loss counts: all but padding.
struct CountedRows {
  bool may_have_padding = false;
  TokenRows tokens{};
  Sequences sequences{};

  bool operator()(std::size_t row) const {
    return !may_have_padding || !sequences[tokens.global(row)].is_padding();
  }
};

template <class Frame, class X>
CountedRows counted_rows(Frame& frame, const X& x) {
  if (!x.global().has(Axis::sequence)) return {};
  return {true, token_rows(x), frame.sequences(x.global())};
}

/// Of experts without a balancing loss.
struct NoBalance {
  template <class A>
  void add(std::size_t, A*) const {}
};

/// The rank's part of the gradient of the logits: that through the probabilities of its experts,
/// whose gradients are `slopes`; those of other experts are 0.
template <class T>
struct ExpertBalance {
  using A = accumulate_t<T>;

  std::size_t experts;
  const T* logits;  // [rows, experts]
  CountedRows is_counted;
  PooledArray<A> slopes;         // [experts]
  PooledArray<A> probabilities;  // of one row

  void add(std::size_t r, A* gradient) const {
    if (!is_counted(r)) return;
    const auto logit = [row = logits + r * experts](std::size_t e) {
      return static_cast<A>(row[e]);
    };
    A largest = logit(0);
    for (std::size_t e = 1; e < experts; ++e) largest = std::max(largest, logit(e));
    put_softmax(experts, largest, logit, probabilities.data());
    A mean = 0;
    for (std::size_t e = 0; e < experts; ++e) mean += probabilities[e] * slopes[e];
    for (std::size_t e = 0; e < experts; ++e) gradient[e] += probabilities[e] * (slopes[e] - mean);
  }
};

/// Of the loss `factor` E Σ f P, see `Experts`: the gradient of the probability of expert e in each
/// counted row is factor E f_e / rows.
template <class T, class Frame, class X, class A>
ExpertBalance<T> balance_of(Frame& frame, const X& x, const Routing<A>& routing, const T* logits,
                            std::size_t experts, double factor) {
  ExpertBalance<T> balance{experts, logits, counted_rows(frame, x), take_array<A>(frame, experts),
                           take_array<A>(frame, experts)};
  std::fill_n(balance.slopes.data(), experts, A(0));
  std::fill_n(routing.counts.data(), routing.held.size, std::size_t{0});
  double rows = 0;
  for (std::size_t r = 0; r < routing.rows; ++r) {
    if (!balance.is_counted(r)) continue;
    ++rows;
    for (std::size_t c = r * routing.chosen; c < (r + 1) * routing.chosen; ++c) {
      const std::size_t e = routing.experts[c] - routing.held.offset;
      if (e < routing.held.size) ++routing.counts[e];
    }
  }
  for (std::size_t e = 0; e < routing.held.size; ++e) {
    const double share = static_cast<double>(routing.counts[e]) / rows;
    balance.slopes[routing.held.offset + e] =
        static_cast<A>(factor * static_cast<double>(experts) * share / rows);
  }
  return balance;
}

}  // namespace shardwise::detail
