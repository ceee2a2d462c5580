#pragma once
// The balancing loss of a mixture of experts, and its gradient. In memory of the host.

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/partition.hpp"
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
  return {true, token_rows(frame.held_part(x)), frame.sequences(x.global())};
}

/// The softmax of the logits of one row.
template <class T>
void put_probabilities(std::size_t experts, const T* logits, accumulate_t<T>* probabilities) {
  using A = accumulate_t<T>;
  const auto logit = [&](std::size_t e) { return static_cast<A>(logits[e]); };
  A largest = logit(0);
  for (std::size_t e = 1; e < experts; ++e) largest = std::max(largest, logit(e));
  put_softmax(experts, largest, logit, probabilities);
}

/// Sums over counted rows, one after the other: how often each expert was chosen, the probability
/// of each expert, and the number of rows.
class BalanceSums {
 public:
  explicit constexpr BalanceSums(std::size_t experts) : experts_(experts) {}

  constexpr std::size_t count() const { return 2 * experts_ + 1; }

  ///@{
  /// Those of one expert, and the number of rows.
  template <class D>
  static D& choices(D* sums, std::size_t e) {
    return sums[e];
  }
  template <class D>
  D& probability(D* sums, std::size_t e) const {
    return sums[experts_ + e];
  }
  template <class D>
  D& rows(D* sums) const {
    return sums[2 * experts_];
  }
  ///@}

  /// E Σ f P, see `Experts`; 0 without rows.
  double loss(const double* sums) const;

  constexpr std::size_t experts() const { return experts_; }

 private:
  std::size_t experts_;
};

/// Writes the sums over the rank's rows.
template <class Frame, class X, class A, class T>
void put_balance_sums(Frame& frame, const X& x, const Routing<A>& routing, const T* logits,
                      const BalanceSums& of, double* sums) {
  const CountedRows is_counted = counted_rows(frame, x);
  const auto probabilities = take_array<A>(frame, of.experts());
  std::fill_n(sums, of.count(), 0.0);
  for (std::size_t r = 0; r < routing.rows; ++r) {
    if (!is_counted(r)) continue;
    ++of.rows(sums);
    for (std::size_t c = r * routing.chosen; c < (r + 1) * routing.chosen; ++c)
      ++of.choices(sums, routing.experts[c]);
    put_probabilities(of.experts(), logits + r * of.experts(), probabilities.data());
    for (std::size_t e = 0; e < of.experts(); ++e)
      of.probability(sums, e) += static_cast<double>(probabilities[e]);
  }
}

/// Of experts without a balancing loss.
struct NoBalance {
  template <class A>
  void add(std::size_t, A*) const {}
};

/// The gradient of a balancing loss by the logits: the part through the probabilities of the rank's
/// experts.
template <class T>
struct ExpertBalance {
  using A = accumulate_t<T>;

  std::size_t experts;
  const T* logits;  // [rows, experts]
  CountedRows is_counted;
  Interval held;
  PooledArray<A> slopes;         // [experts], of the probabilities: the same in each counted row
  PooledArray<A> probabilities;  // of one row

  /// Adds the gradient of a row's logits.
  void add(std::size_t r, A* gradient) const {
    if (!is_counted(r)) return;
    put_probabilities(experts, logits + r * experts, probabilities.data());
    const A mean =
        std::inner_product(probabilities.data() + held.offset, probabilities.data() + held.end(),
                           slopes.data() + held.offset, A(0));
    for (std::size_t e = 0; e < experts; ++e) gradient[e] -= probabilities[e] * mean;
    for (std::size_t e = held.offset; e < held.end(); ++e)
      gradient[e] += probabilities[e] * slopes[e];
  }
};

/// Of the loss `factor` E Σ f P, see `Experts`: the gradient of the probability of expert e in each
/// counted row is factor E f_e / rows.
template <class T, class Frame, class X, class A>
ExpertBalance<T> balance_of(Frame& frame, const X& x, const Routing<A>& routing, const T* logits,
                            const BalanceSums& of, const double* sums, double factor) {
  const std::size_t experts = of.experts();
  ExpertBalance<T> balance{experts,
                           logits,
                           counted_rows(frame, x),
                           routing.held,
                           take_array<A>(frame, experts),
                           take_array<A>(frame, experts)};
  const double rows = of.rows(sums);
  for (std::size_t e = 0; e < experts; ++e) {
    const double share = of.choices(sums, e) / rows;
    balance.slopes[e] = static_cast<A>(factor * static_cast<double>(experts) * share / rows);
  }
  return balance;
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE double BalanceSums::loss(const double* sums) const {
  if (rows(sums) == 0) return 0;
  double loss = 0;
  for (std::size_t e = 0; e < experts_; ++e)
    loss += choices(sums, e) / rows(sums) * (probability(sums, e) / rows(sums));
  return static_cast<double>(experts_) * loss;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
