#pragma once
// Stochastic gradient descent.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

/// g' = g + weight_decay p;   without momentum  p -= learning_rate g'
///                            with momentum     v = momentum v + (1 - dampening) g'
///                                              p -= learning_rate v
///                            with Nesterov's   v = momentum v + g'
///                                              p -= learning_rate (g' + momentum v)
/// v is g' after the first step, before which `optimizer.steps()` is 0, whatever the dampening.
/// source   torch.optim.SGD; Sutskever et al. 2013 for Nesterov's form
struct Sgd {
  ///@{
  /// As in the formula.
  double learning_rate = 1e-3;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double dampening = 0;
  ///@}
  Decay decay = Decay::all;  ///< the parameters to which weight_decay applies

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("learning_rate", learning_rate);
    f("momentum", momentum);
    f("nesterov", nesterov);
    f("weight_decay", weight_decay);
    f("dampening", dampening);
    f("decay", detail::word(decay));
  }

  /// throws   argument_error for negative options, and for nesterov without momentum or with
  ///          dampening
  void check() const;

  /// v, unless there is no momentum.
  constexpr std::size_t moments() const { return momentum == 0 ? 0 : 1; }

  /// One step on one element, in numbers of type A.
  template <class A>
  struct Update {
    ///@{
    /// The options; `fresh` is the factor of the gradient in v.
    A rate;
    A momentum;
    A fresh;
    A decay;
    bool nesterov;
    bool moves;  ///< whether there is momentum, even if A rounds it to 0
    ///@}

    static constexpr bool has_forms = true;  ///< as `UpdateRule` says

    /// The new value; changes the moment, if there is one.
    constexpr A operator()(A value, A gradient, A* moments) const {
      return in_form([=](auto, const auto& step) { return step(value, gradient, moments); });
    }

    /// As `UpdateRule` says.
    template <class F>
    constexpr auto in_form(const F& f) const {
      if (!moves) {
        return f(std::integral_constant<std::size_t, 0>{}, [*this](A value, A gradient, A*) {
          return value - rate * decayed(value, gradient);
        });
      }
      return f(std::integral_constant<std::size_t, 1>{}, [*this](A value, A gradient, A* moments) {
        const A summand = decayed(value, gradient);
        moments[0] = momentum * moments[0] + fresh * summand;
        const A ahead = summand + momentum * moments[0];
        return value - rate * detail::select(nesterov, ahead, moments[0]);
      });
    }

   private:
    constexpr A decayed(A value, A gradient) const { return gradient + decay * value; }
  };

  /// The update of step `step`, counted from 1: the first one is not dampened.
  template <class A>
  constexpr Update<A> update(std::uint64_t step) const {
    return {static_cast<A>(learning_rate),
            static_cast<A>(momentum),
            static_cast<A>(step == 1 ? 1 : 1 - dampening),
            static_cast<A>(weight_decay),
            nesterov,
            momentum != 0};
  }
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void Sgd::check() const {
  constexpr double any = std::numeric_limits<double>::infinity();
  detail::check_option("Sgd", "learning_rate", learning_rate, any);
  detail::check_option("Sgd", "momentum", momentum, any);
  detail::check_option("Sgd", "weight_decay", weight_decay, any);
  detail::check_option("Sgd", "dampening", dampening, any);
  if (nesterov && dampening != 0) {
    throw argument_error({"Sgd: nesterov has no dampening, but dampening is ", dampening,
                          ": leave one of them out"});
  }
  if (nesterov && momentum == 0) {
    throw argument_error(
        "Sgd: nesterov changes how momentum is used, but momentum is 0: set momentum, for "
        "example to 0.9, or leave nesterov out");
  }
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
