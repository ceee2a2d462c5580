#pragma once
// Element-wise non-linearities: value and slope of each, as small function objects.
//
// They compute in accumulate_t<T>, which is float or double. Every finite or infinite input gives a
// number, or the limit if there is one; NaN gives NaN. A backend that fuses them into its product
// keeps NaN too, but may give NaN for a sum of minus infinity: oneDNN does so for both forms of
// GELU and for SiLU.

#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string>
#include <string_view>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/names.hpp"

namespace shardwise {

/// The functions that a kernel may apply to the result of a product before it writes it.
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu, tanh, sigmoid };

/// "gelu_tanh".
constexpr std::string_view name(Activation activation) {
  constexpr std::string_view names[] = {"none", "relu", "gelu",   "gelu_tanh",
                                        "silu", "tanh", "sigmoid"};
  return names[static_cast<std::size_t>(activation)];
}

/// One type for each activation; `kind` tells kernels which one it is, and is `none` for those that
/// no product applies. `value` is the function of
/// an input x, in float or double, and `slope` its derivative. If `slope_from_output` is true,
/// `slope` takes the output y, so that the input need not be saved; else it takes the input x.
namespace activations {

/// x.
struct Identity {
  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::none;
  static constexpr bool slope_from_output = true;

  template <class A>
  static constexpr A value(A x) {
    return x;
  }
  template <class A>
  static constexpr A slope(A) {
    return A(1);
  }
  ///@}
};

/// max(x, 0), with slope 0 at 0.
struct Relu {
  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::relu;
  static constexpr bool slope_from_output = true;

  template <class A>
  static constexpr A value(A x) {
    return x < A(0) ? A(0) : x;
  }
  template <class A>
  static constexpr A slope(A y) {
    return detail::select(y > A(0), A(1), A(0));
  }
  ///@}
};

/// x P(x), P the distribution function of the standard normal: the form with erf of Hendrycks and
/// Gimpel, "Gaussian error linear units", 2016.
struct Gelu {
  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::gelu;
  static constexpr bool slope_from_output = false;

  template <class A>
  static constexpr A value(A x) {
    return detail::at_least(x, -far<A>) * detail::normal_distribution(held(x));
  }
  /// P(x) + x p(x), p the density e^(-x^2 / 2) / sqrt(2 pi).
  template <class A>
  static constexpr A slope(A x) {
    constexpr A inv_sqrt_2pi = std::numbers::inv_sqrtpi_v<A> / std::numbers::sqrt2_v<A>;
    const A h = held(x);
    return detail::normal_distribution(h) + h * inv_sqrt_2pi * detail::exponential(A(-0.5) * h * h);
  }
  ///@}

 private:
  template <class A>
  static constexpr A far = std::is_same_v<A, float> ? A(13) : A(37);  // P(-far) is almost zero

  template <class A>
  static constexpr A held(A x) {
    return detail::at_least(detail::at_most(x, far<A>), -far<A>);
  }
};

/// x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3): the approximation of the same
/// paper. Computed as x times the logistic function of 2 u, which is accurate for x < 0 too.
struct GeluTanh {
  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::gelu_tanh;
  static constexpr bool slope_from_output = false;

  template <class A>
  static constexpr A value(A x) {
    const A h = held(x);
    return detail::at_least(x, -far<A>) * detail::logistic(twice_u(h));
  }
  /// s + x s (1 - s) 2 u' with s the logistic function of 2 u.
  template <class A>
  static constexpr A slope(A x) {
    const A h = held(x);
    const A e = detail::exponential(-twice_u(h));
    const A s = A(1) / (A(1) + e);  // and 1 - s = e s, without cancellation
    return s + h * s * (e * s) * (c<A> * (A(1) + A(3 * 0.044715) * h * h));
  }
  ///@}

 private:
  template <class A>
  static constexpr A c = 2 * std::numbers::sqrt2_v<A>* std::numbers::inv_sqrtpi_v<A>;
  template <class A>
  static constexpr A far = std::is_same_v<A, float> ? A(10) : A(20);  // 2 u is -87 and -603 there

  template <class A>
  static constexpr A held(A x) {
    return detail::at_least(detail::at_most(x, far<A>), -far<A>);
  }
  template <class A>
  static constexpr A twice_u(A x) {
    return c<A> * (x + A(0.044715) * x * x * x);
  }
};

/// x s(x), s the logistic function: Elfwing, Uchibe, Doya, "Sigmoid-weighted linear units", 2017.
struct Silu {
  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::silu;
  static constexpr bool slope_from_output = false;

  template <class A>
  static constexpr A value(A x) {
    const A h = detail::at_least(x, -detail::exp_limit<A>);
    return h * detail::logistic(h);
  }
  /// s (1 + x (1 - s)).
  template <class A>
  static constexpr A slope(A x) {
    constexpr A far = detail::exp_limit<A>;
    const A h = detail::at_least(detail::at_most(x, far), -far);
    const A e = detail::exponential(-h);
    const A s = A(1) / (A(1) + e);  // and 1 - s = e s, without cancellation
    return s * (A(1) + h * (e * s));
  }
  ///@}
};

/// The hyperbolic tangent.
struct Tanh {
  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::tanh;
  static constexpr bool slope_from_output = true;

  template <class A>
  static constexpr A value(A x) {
    return detail::hyperbolic_tangent(x);
  }
  template <class A>
  static constexpr A slope(A y) {
    return A(1) - y * y;
  }
  ///@}
};

/// The logistic function 1 / (1 + e^-x).
struct Sigmoid {
  ///@{
  /// As every function of `activations`.
  static constexpr Activation kind = Activation::sigmoid;
  static constexpr bool slope_from_output = true;

  template <class A>
  static constexpr A value(A x) {
    return detail::logistic(detail::at_least(x, -detail::exp_limit<A>));
  }
  template <class A>
  static constexpr A slope(A y) {
    return y * (A(1) - y);
  }
  ///@}
};

}  // namespace activations

namespace detail {

/// "silu", or the name of its type for a function that no product applies: "HardSwish".
template <class F>
std::string function_name() {
  return F::kind == Activation::none ? name_of<F>() : std::string(name(F::kind));
}

}  // namespace detail

/// Calls f with the function object of `activation` and returns what it returns.
template <class F>
decltype(auto) visit(Activation activation, F&& f) {
  switch (activation) {
    case Activation::relu:
      return f(activations::Relu{});
    case Activation::gelu:
      return f(activations::Gelu{});
    case Activation::gelu_tanh:
      return f(activations::GeluTanh{});
    case Activation::silu:
      return f(activations::Silu{});
    case Activation::tanh:
      return f(activations::Tanh{});
    case Activation::sigmoid:
      return f(activations::Sigmoid{});
    case Activation::none:
      break;
  }
  return f(activations::Identity{});
}

}  // namespace shardwise
