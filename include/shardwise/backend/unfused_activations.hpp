#pragma once
// Element-wise functions that only loops of layers compute: no product applies them to its result.

#include <cmath>
#include <cstdint>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/detail/elementary.hpp"

namespace shardwise::activations {

/// x for x > 0, else x Numerator / Denominator: Maas, Hannun, Ng, "Rectifier nonlinearities
/// improve neural network acoustic models", 2013.
template <std::uint32_t Numerator, std::uint32_t Denominator>
struct LeakyRelu {
  static_assert(Numerator > 0 && Denominator > 0,
                "LeakyRelu<Numerator, Denominator> has the slope Numerator / Denominator below 0, "
                "which must be above 0, as in LeakyRelu<1, 5>. For the slope 0 take Relu.");

  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::none;
  static constexpr bool slope_from_output = true;

  template <class A>
  static constexpr A value(A x) {
    return detail::select(x > A(0), x, x * below<A>);
  }
  template <class A>
  static constexpr A slope(A y) {
    return detail::select(y > A(0), A(1), below<A>);
  }
  ///@}

 private:
  template <class A>
  static constexpr A below = A(Numerator) / A(Denominator);
};

/// x for x > 0, else alpha (e^x - 1), with alpha = Numerator / Denominator: Clevert, Unterthiner,
/// Hochreiter, "Fast and accurate deep network learning by exponential linear units", 2015.
template <std::uint32_t Numerator, std::uint32_t Denominator>
struct Elu {
  static_assert(Numerator > 0 && Denominator > 0,
                "Elu<Numerator, Denominator> goes to -Numerator / Denominator far below 0, which "
                "must be below 0, as in Elu<1, 1>. For the limit 0 take Relu.");

  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::none;
  static constexpr bool slope_from_output = false;  // y + alpha is 0 where y is rounded to -alpha

  template <class A>
  static constexpr A value(A x) {
    return detail::select(x > A(0), x, alpha<A> * detail::exponential_less_one(x));
  }
  template <class A>
  static constexpr A slope(A x) {
    return detail::select(x > A(0), A(1), alpha<A> * detail::exponential(x));
  }
  ///@}

 private:
  template <class A>
  static constexpr A alpha = A(Numerator) / A(Denominator);
};

/// log(1 + e^x), computed as max(x, 0) + log(1 + e^-|x|). PyTorch returns x above 20, where this is
/// larger by less than 3e-9.
struct Softplus {
  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::none;
  static constexpr bool slope_from_output = true;

  template <class A>
  static constexpr A value(A x) {
    return detail::at_least(x, A(0)) + detail::log_of_one_plus(detail::exponential(-std::fabs(x)));
  }
  /// 1 - e^-y.
  template <class A>
  static constexpr A slope(A y) {
    return -detail::exponential_less_one(-y);
  }
  ///@}
};

/// x max(0, min(6, x + 3)) / 6, with slope 0 at -3 and 1 at 3: Howard et al., "Searching for
/// MobileNetV3", 2019, section 5.2.
struct HardSwish {
  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::none;
  static constexpr bool slope_from_output = false;

  template <class A>
  static constexpr A value(A x) {
    const A h = detail::at_least(x, A(-3));
    return h * (detail::at_most(h + A(3), A(6)) / A(6));
  }
  template <class A>
  static constexpr A slope(A x) {
    const A inside = detail::select(x < A(3), x / A(3) + A(0.5), A(1));
    return detail::select(x > A(-3), inside, A(0));
  }
  ///@}
};

}  // namespace shardwise::activations
