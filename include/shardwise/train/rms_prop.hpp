#pragma once
// Steps divided by the root of a moving mean of squared gradients.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

/// g' = g + weight_decay p,   s = alpha s + (1 - alpha) g'²
/// without `centered`   d = g' / (sqrt(s) + epsilon)
/// with `centered`      a = alpha a + (1 - alpha) g',   d = g' / (sqrt(s - a²) + epsilon)
/// without momentum     p -= learning_rate d
/// with momentum        v = momentum v + d,   p -= learning_rate v
/// s, a and v are 0 at first.
/// source   torch.optim.RMSprop; Graves 2013, equations 38 to 45, for the centered form
struct RmsProp {
  ///@{
  /// As in the formula.
  double learning_rate = 1e-2;
  double alpha = 0.99;
  double epsilon = 1e-8;
  double momentum = 0;
  bool centered = false;
  double weight_decay = 0;
  ///@}
  Decay decay = Decay::all;  ///< the parameters to which weight_decay applies

  /// Calls f(name, value) for each option.
  template <class F>
  constexpr void visit_options(F&& f) const {
    f("learning_rate", learning_rate);
    f("alpha", alpha);
    f("epsilon", epsilon);
    f("momentum", momentum);
    f("centered", centered);
    f("weight_decay", weight_decay);
    f("decay", detail::word(decay));
  }

  /// throws   argument_error for negative options, and for an alpha of 1 or more
  void check() const;

  /// s, then a and v if there are.
  constexpr std::size_t moments() const {
    return 1U + (centered ? 1U : 0U) + (momentum == 0 ? 0U : 1U);
  }
  /// Which these are, so that a checkpoint with a is not taken for one with v.
  std::string moment_names() const {
    return std::string("s") + (centered ? ", a" : "") + (momentum == 0 ? "" : ", v");
  }

  /// One step on one element, in numbers of type A.
  template <class A>
  struct Update {
    ///@{
    /// The options; `fresh` is 1 - alpha.
    A rate;
    A alpha;
    A fresh;
    A epsilon;
    A momentum;
    A decay;
    bool centered;
    bool moves;  ///< whether there is momentum, even if A rounds it to 0
    ///@}

    static constexpr bool has_forms = true;  ///< as `UpdateRule` says

    /// The new value; changes the `moments`. A variance that cancels below 0 counts as 0.
    constexpr A operator()(A value, A gradient, A* moments) const {
      return in_form([=](auto, const auto& step) { return step(value, gradient, moments); });
    }

    /// As `UpdateRule` says.
    template <class F>
    constexpr auto in_form(const F& f) const {
      if (centered) return moves ? form<true, true>(f) : form<true, false>(f);
      return moves ? form<false, true>(f) : form<false, false>(f);
    }

   private:
    template <bool Centered, bool Moves, class F>
    constexpr auto form(const F& f) const {
      constexpr std::size_t count = (Centered ? 2 : 1) + (Moves ? 1 : 0);
      return f(std::integral_constant<std::size_t, count>{},
               [*this](A value, A gradient, A* moments) {
                 const A decayed = gradient + decay * value;
                 moments[0] = alpha * moments[0] + fresh * decayed * decayed;
                 A variance = moments[0];
                 if constexpr (Centered) {
                   moments[1] = alpha * moments[1] + fresh * decayed;
                   variance = detail::at_least(variance - moments[1] * moments[1], A(0));
                 }
                 A change = decayed / (detail::square_root(variance) + epsilon);
                 if constexpr (Moves) {
                   A& velocity = moments[Centered ? 2 : 1];
                   change = velocity = momentum * velocity + change;
                 }
                 return value - rate * change;
               });
    }
  };

  /// The update, which is the same in every step.
  template <class A>
  constexpr Update<A> update(std::uint64_t) const {
    return {static_cast<A>(learning_rate),
            static_cast<A>(alpha),
            static_cast<A>(1 - alpha),
            static_cast<A>(epsilon),
            static_cast<A>(momentum),
            static_cast<A>(weight_decay),
            centered,
            momentum != 0};
  }
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE void RmsProp::check() const {
  constexpr double any = std::numeric_limits<double>::infinity();
  detail::check_option("RmsProp", "learning_rate", learning_rate, any);
  detail::check_option("RmsProp", "alpha", alpha, 1);
  detail::check_option("RmsProp", "epsilon", epsilon, any);
  detail::check_option("RmsProp", "momentum", momentum, any);
  detail::check_option("RmsProp", "weight_decay", weight_decay, any);
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
