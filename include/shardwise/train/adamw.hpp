#pragma once
// Adam with decoupled weight decay.

#include <cstddef>
#include <cstdint>

#include "shardwise/train/adam.hpp"
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

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    detail::visit_adam(*this, f);
  }

  /// throws   argument_error for negative options, and for a beta of 1 or more
  void check() const { detail::check_adam("AdamW", *this); }

  /// m and v.
  static constexpr std::size_t moments() { return 2; }

  /// The update of step `step`, counted from 1.
  template <class A>
  detail::AdamUpdate<A> update(std::uint64_t step) const {
    return detail::adam_update<A>(*this, step, 1 - learning_rate * weight_decay, 0);
  }
};

}  // namespace shardwise
