#pragma once
// Adam, whose weight decay is a part of the gradient; and the update that it shares with AdamW.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

namespace detail {

/// One step of Adam or AdamW on one element, in numbers of type A.
template <class A>
struct AdamUpdate {
  A keep;        ///< factor of the value after decay beside the gradient
  A decay;       ///< factor of the value in the gradient
  A rate;        ///< corrected for the first moment
  A beta1;       ///< factor of the first moment
  A fresh1;      ///< factor of the gradient in the first moment
  A beta2;       ///< factor of the second moment
  A fresh2;      ///< factor of the squared gradient in the second moment
  A root_scale;  ///< corrects the root of the second moment
  A epsilon;     ///< as in the formula

  /// The new value; changes the two `moments`.
  constexpr A operator()(A value, A gradient, A* moments) const {
    const A decayed = gradient + decay * value;
    moments[0] = beta1 * moments[0] + fresh1 * decayed;
    moments[1] = beta2 * moments[1] + fresh2 * decayed * decayed;
    return keep * value - rate * moments[0] / (square_root(moments[1]) * root_scale + epsilon);
  }
};

/// The update of step `step`, counted from 1, of a rule with the options of Adam.
template <class A, class Rule>
AdamUpdate<A> adam_update(const Rule& rule, std::uint64_t step, double keep, double decay) {
  const auto t = static_cast<double>(step);
  const double corrected1 = 1 - std::pow(rule.beta1, t);
  const double corrected2 = 1 - std::pow(rule.beta2, t);
  return {static_cast<A>(keep),
          static_cast<A>(decay),
          static_cast<A>(rule.learning_rate / corrected1),
          static_cast<A>(rule.beta1),
          static_cast<A>(1 - rule.beta1),
          static_cast<A>(rule.beta2),
          static_cast<A>(1 - rule.beta2),
          static_cast<A>(1 / std::sqrt(corrected2)),
          static_cast<A>(rule.epsilon)};
}

/// Throws argument_error for options of Adam that make no sense; `name` is the rule's.
template <class Rule>
void check_adam(const char* name, const Rule& rule) {
  constexpr double any = std::numeric_limits<double>::infinity();
  check_option(name, "learning_rate", rule.learning_rate, any);
  check_option(name, "beta1", rule.beta1, 1);
  check_option(name, "beta2", rule.beta2, 1);
  check_option(name, "epsilon", rule.epsilon, any);
  check_option(name, "weight_decay", rule.weight_decay, any);
}

/// Calls f(name, value) for each option of Adam.
template <class Rule, class F>
constexpr void visit_adam(const Rule& rule, F& f) {
  f("learning_rate", rule.learning_rate);
  f("beta1", rule.beta1);
  f("beta2", rule.beta2);
  f("epsilon", rule.epsilon);
  f("weight_decay", rule.weight_decay);
  f("decay", word(rule.decay));
}

}  // namespace detail

/// g' = g + weight_decay p
/// m = beta1 m + (1 - beta1) g',   v = beta2 v + (1 - beta2) g'²,   both from 0 on; in step t
/// p = p - learning_rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
/// source   Kingma and Ba 2015, algorithm 1, with the decay of torch.optim.Adam
struct Adam {
  ///@{
  /// As in the formula.
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  ///@}
  Decay decay = Decay::all;  ///< the parameters to which weight_decay applies

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    detail::visit_adam(*this, f);
  }

  /// throws   argument_error for negative options, and for a beta of 1 or more
  void check() const { detail::check_adam("Adam", *this); }

  /// m and v.
  static constexpr std::size_t moments() { return 2; }

  /// The update of step `step`, counted from 1.
  template <class A>
  detail::AdamUpdate<A> update(std::uint64_t step) const {
    return detail::adam_update<A>(*this, step, 1, weight_decay);
  }
};

}  // namespace shardwise
