#pragma once
// The balancing loss of a mixture of experts, and its gradient.

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/detail/routing.hpp"

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
  return {true, frame.token_rows(x), frame.sequences(x.global())};
}

/// Of experts without a balancing loss.
struct NoBalance {
  template <class A>
  double add(std::size_t, A*) const {
    return 0;
  }
};

/// The loss Σ slope · probability over rows and experts, since its slopes are constants, and the
/// rank's part of its gradient of the logits: that through the probabilities of the rank's experts.
template <class T>
struct ExpertBalance {
  using A = accumulate_t<T>;

  std::size_t experts;
  const T* logits;  // [rows, experts]
  CountedRows is_counted;
  Interval held;
  PooledArray<A> slopes;         // [experts]
  PooledArray<A> probabilities;  // of one row

  /// Adds the gradient of a row's logits, and returns the row's part of the loss.
  double add(std::size_t r, A* gradient) const {
    if (!is_counted(r)) return 0;
    const auto logit = [row = logits + r * experts](std::size_t e) {
      return static_cast<A>(row[e]);
    };
    A largest = logit(0);
    for (std::size_t e = 1; e < experts; ++e) largest = std::max(largest, logit(e));
    put_softmax(experts, largest, logit, probabilities.data());
    const auto sum_of = [&](Interval some) {
      return std::inner_product(probabilities.data() + some.offset,
                                probabilities.data() + some.end(), slopes.data() + some.offset,
                                A(0));
    };
    const A mean = sum_of(held);
    for (std::size_t e = 0; e < experts; ++e) gradient[e] -= probabilities[e] * mean;
    for (std::size_t e = held.offset; e < held.end(); ++e)
      gradient[e] += probabilities[e] * slopes[e];
    return static_cast<double>(sum_of({0, experts}));
  }
};

/// Of the loss `factor` E Σ f P, see `Experts`: the gradient of the probability of expert e in each
/// counted row is factor E f_e / rows.
template <class T, class Frame, class X, class A>
ExpertBalance<T> balance_of(Frame& frame, const X& x, const Routing<A>& routing, const T* logits,
                            std::size_t experts, double factor) {
  ExpertBalance<T> balance{experts,
                           logits,
                           counted_rows(frame, x),
                           routing.held,
                           take_array<A>(frame, experts),
                           take_array<A>(frame, experts)};
  const auto counts = take_array<std::size_t>(frame, experts);
  std::fill_n(counts.data(), experts, std::size_t{0});
  double rows = 0;
  for (std::size_t r = 0; r < routing.rows; ++r) {
    if (!balance.is_counted(r)) continue;
    ++rows;
    for (std::size_t c = r * routing.chosen; c < (r + 1) * routing.chosen; ++c)
      ++counts[routing.experts[c]];
  }
  for (std::size_t e = 0; e < experts; ++e) {
    const double share = static_cast<double>(counts[e]) / rows;
    balance.slopes[e] = static_cast<A>(factor * static_cast<double>(experts) * share / rows);
  }
  return balance;
}

}  // namespace shardwise::detail
