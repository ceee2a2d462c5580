#pragma once
// Adam with decoupled weight decay.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "shardwise/train/optimizer.hpp"

namespace shardwise {

/// m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g²,   both from 0 on; in step t
/// p = (1 - learning_rate weight_decay) p
///     - learning_rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
/// source   Loshchilov and Hutter 2019, algorithm 2, as torch.optim.AdamW computes it
struct AdamW {
  ///@{
  /// As in the formula.
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  ///@}
  Decay decay = Decay::all;  ///< the parameters to which weight_decay applies

  /// throws   argument_error for negative options, and for a beta of 1 or more
  void check() const {
    constexpr double any = std::numeric_limits<double>::infinity();
    detail::check_option("AdamW", "learning_rate", learning_rate, any);
    detail::check_option("AdamW", "beta1", beta1, 1);
    detail::check_option("AdamW", "beta2", beta2, 1);
    detail::check_option("AdamW", "epsilon", epsilon, any);
    detail::check_option("AdamW", "weight_decay", weight_decay, any);
  }

  /// m and v.
  constexpr std::size_t moments() const { return 2; }

  /// One step on one element, in numbers of type A.
  template <class A>
  struct Update {
    A keep;        ///< factor of the value after decay
    A rate;        ///< corrected for the first moment
    A beta1;       ///< factor of the first moment
    A fresh1;      ///< factor of the gradient in the first moment
    A beta2;       ///< factor of the second moment
    A fresh2;      ///< factor of the squared gradient in the second moment
    A root_scale;  ///< corrects the root of the second moment
    A epsilon;     ///< as in the formula

    /// The new value; changes the two `moments`.
    constexpr A operator()(A value, A gradient, A* moments) const {
      moments[0] = beta1 * moments[0] + fresh1 * gradient;
      moments[1] = beta2 * moments[1] + fresh2 * gradient * gradient;
      return keep * value - rate * moments[0] / (std::sqrt(moments[1]) * root_scale + epsilon);
    }
  };

  /// The update of step `step`, counted from 1.
  template <class A>
  Update<A> update(std::uint64_t step) const {
    const auto t = static_cast<double>(step);
    const double corrected1 = 1 - std::pow(beta1, t);
    const double corrected2 = 1 - std::pow(beta2, t);
    return {static_cast<A>(1 - learning_rate * weight_decay),
            static_cast<A>(learning_rate / corrected1),
            static_cast<A>(beta1),
            static_cast<A>(1 - beta1),
            static_cast<A>(beta2),
            static_cast<A>(1 - beta2),
            static_cast<A>(1 / std::sqrt(corrected2)),
            static_cast<A>(epsilon)};
  }
};

}  // namespace shardwise
