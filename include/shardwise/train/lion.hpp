#pragma once
// Steps by the sign of a moving mean of gradients.

#include <cstddef>
#include <cstdint>
#include <limits>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

/// p = (1 - learning_rate weight_decay) p - learning_rate sign(beta1 m + (1 - beta1) g)
/// m = beta2 m + (1 - beta2) g,   from 0 on
/// source   Chen et al. 2023, "Symbolic discovery of optimization algorithms", program 1
struct Lion {
  ///@{
  /// As in the formula.
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  ///@}
  Decay decay = Decay::all;  ///< the parameters to which weight_decay applies

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("learning_rate", learning_rate);
    f("beta1", beta1);
    f("beta2", beta2);
    f("weight_decay", weight_decay);
    f("decay", detail::word(decay));
  }

  /// throws   argument_error for negative options, and for a beta of 1 or more
  void check() const;

  /// m.
  static constexpr std::size_t moments() { return 1; }

  /// One step on one element, in numbers of type A.
  template <class A>
  struct Update {
    A keep;    ///< factor of the value after decay
    A rate;    ///< as in the formula
    A beta1;   ///< factor of the moment in the step
    A fresh1;  ///< factor of the gradient in the step
    A beta2;   ///< factor of the moment in its next value
    A fresh2;  ///< factor of the gradient in the moment

    /// The new value; changes the moment. A NaN has no sign and stays one.
    constexpr A operator()(A value, A gradient, A* moments) const {
      const A mean = beta1 * moments[0] + fresh1 * gradient;
      moments[0] = beta2 * moments[0] + fresh2 * gradient;
      const A sign = detail::select(mean > 0, A(1), detail::select(mean < 0, A(-1), mean));
      return keep * value - rate * sign;
    }
  };

  /// The update, which is the same in every step.
  template <class A>
  constexpr Update<A> update(std::uint64_t) const {
    return {static_cast<A>(1 - learning_rate * weight_decay),
            static_cast<A>(learning_rate),
            static_cast<A>(beta1),
            static_cast<A>(1 - beta1),
            static_cast<A>(beta2),
            static_cast<A>(1 - beta2)};
  }
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void Lion::check() const {
  constexpr double any = std::numeric_limits<double>::infinity();
  detail::check_option("Lion", "learning_rate", learning_rate, any);
  detail::check_option("Lion", "beta1", beta1, 1);
  detail::check_option("Lion", "beta2", beta2, 1);
  detail::check_option("Lion", "weight_decay", weight_decay, any);
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
