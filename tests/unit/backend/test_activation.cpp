#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/unfused_activations.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using namespace shardwise::activations;

namespace {

/// The textbook forms in double.
double plain(Activation activation, double x) {
  switch (activation) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::none:
      break;
  }
  return x;
}

/// A function that no product applies, and its name in the witness.
template <class F>
struct Unfused {
  static constexpr const char* witness = std::is_same_v<F, LeakyRelu<1, 100>> ? "leaky_relu"
                                         : std::is_same_v<F, LeakyRelu<1, 5>> ? "leaky_relu_fifth"
                                         : std::is_same_v<F, Elu<1, 1>>       ? "elu"
                                         : std::is_same_v<F, Elu<1, 2>>       ? "elu_half"
                                         : std::is_same_v<F, Softplus>        ? "softplus"
                                                                              : "hard_swish";
};

/// The slope at the input x, whatever F takes it from.
template <class F, class A>
A slope_at(A x) {
  return F::slope(F::slope_from_output ? F::value(x) : x);
}

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE_TEMPLATE("values are those of the formula", F, Relu, Identity, Gelu, GeluTanh, Silu, Tanh,
                   Sigmoid) {
  for (double x = -12; x <= 12; x += 1.0 / 128) {
    const double exact = plain(F::kind, x);
    CHECK(F::value(x) == doctest::Approx(exact).epsilon(1e-12));
    // In float: 2e-7 of the larger of x and 1 is three units in the last place.
    const double close = 2e-7 * std::max(1.0, std::abs(x));
    CHECK(std::abs(static_cast<double>(F::value(static_cast<float>(x))) - exact) <= close);
  }
}

TEST_CASE_TEMPLATE("slopes are those of finite differences", F, Identity, Gelu, GeluTanh, Silu,
                   Tanh, Sigmoid) {
  constexpr double h = 1e-5;  // error h^2 from the next term, 1e-16 / h from rounding
  for (double x = -9; x <= 9; x += 1.0 / 64) {
    const double difference = (F::value(x + h) - F::value(x - h)) / (2 * h);
    CHECK(std::abs(slope_at<F>(x) - difference) <= 1e-9);
    const double in_float = static_cast<double>(slope_at<F>(static_cast<float>(x)));
    CHECK(std::abs(in_float - difference) <= 1e-6);
  }
}

TEST_CASE_TEMPLATE("values and slopes are PyTorch's", F, Relu, Gelu, GeluTanh, Silu, Tanh,
                   Sigmoid) {
  // PyTorch's double results; ours differ by rounding alone.
  const witness::Values theirs("layers/activations");
  const std::string kind(name(F::kind));
  const auto x = theirs["x"];
  const auto values = theirs[kind + "/values"];
  const auto slopes = theirs[kind + "/slopes"];
  REQUIRE((values.size() == x.size() && slopes.size() == x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i]);
    CHECK(std::abs(F::value(x[i]) - values[i]) <= 1e-14 * std::max(1.0, std::abs(x[i])));
    CHECK(std::abs(slope_at<F>(x[i]) - slopes[i]) <= 1e-14);
  }
}

TEST_CASE_TEMPLATE("functions that no product applies: PyTorch's values and slopes", F,
                   LeakyRelu<1, 100>, LeakyRelu<1, 5>, Elu<1, 1>, Elu<1, 2>, Softplus, HardSwish) {
  const witness::Values theirs("layers/activations");
  const std::string kind(Unfused<F>::witness);
  CAPTURE(kind);
  const auto x = theirs["x"];
  const auto values = theirs[kind + "/values"];
  const auto slopes = theirs[kind + "/slopes"];
  REQUIRE((values.size() == x.size() && slopes.size() == x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i]);
    const double scale = std::max(1.0, std::abs(x[i]));
    CHECK(std::abs(F::value(x[i]) - values[i]) <= 1e-14 * scale);
    CHECK(std::abs(slope_at<F>(x[i]) - slopes[i]) <= 1e-14);
    const auto in_float = static_cast<float>(x[i]);
    CHECK(std::abs(static_cast<double>(F::value(in_float)) - values[i]) <= 2e-7 * scale);
    CHECK(std::abs(static_cast<double>(slope_at<F>(in_float)) - slopes[i]) <= 2e-7);
  }
  CHECK(std::isnan(F::value(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(F::value(std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE_TEMPLATE("and what they are far out and near zero", A, float, double) {
  const A huge = std::numeric_limits<A>::max();
  for (const A x : {huge, static_cast<A>(infinity)}) {
    CHECK(LeakyRelu<1, 100>::value(x) == x);
    CHECK(Elu<1, 1>::value(x) == x);
    CHECK(Softplus::value(x) == x);
    CHECK(HardSwish::value(x) == x);
    CHECK(Softplus::slope(x) == 1);
    CHECK(HardSwish::slope(x) == 1);

    CHECK(Elu<1, 2>::value(-x) == A(-0.5));
    CHECK(slope_at<Elu<1, 2>>(-x) <= A(1e-30));
    CHECK(Softplus::value(-x) <= A(1e-30));
    CHECK(slope_at<Softplus>(-x) <= A(1e-30));
    CHECK(HardSwish::value(-x) == 0);
    CHECK(HardSwish::slope(-x) == 0);
  }
  for (const A x : {A(1e-6), A(-1e-6), A(-1e-3)}) {
    const double exact = std::expm1(static_cast<double>(x));
    CHECK(Elu<1, 1>::value(x) == doctest::Approx(x > 0 ? x : exact).scale(0).epsilon(3e-7));
  }
  const double tiny = std::log1p(std::exp(-30.0));
  CHECK(Softplus::value(A(-30)) == doctest::Approx(tiny).scale(0).epsilon(1e-6));
}

TEST_CASE("the slope of relu is 0 up to 0 and 1 beyond") {
  CHECK(slope_at<Relu>(-1.0) == 0);
  CHECK(slope_at<Relu>(-0.0) == 0);
  CHECK(slope_at<Relu>(0.0) == 0);
  CHECK(slope_at<Relu>(1e-300) == 1);
  CHECK(slope_at<Relu>(2.0F) == 1);
}

TEST_CASE_TEMPLATE("far out there are limits and no overflow", A, float, double) {
  const auto far_out = [](auto f, A below, A above, A slope_above) {
    using F = decltype(f);
    const A huge = std::numeric_limits<A>::max();
    for (const A x : {static_cast<A>(-infinity), -huge, A(-1e30), A(-1000)}) {
      CHECK(std::abs(F::value(x) - below) <= A(1e-30));
      CHECK(std::abs(slope_at<F>(x)) <= A(1e-30));
    }
    for (const A x : {A(1000), A(1e30), huge, static_cast<A>(infinity)}) {
      CHECK(F::value(x) == (above == 0 ? x : above));
      CHECK(slope_at<F>(x) == slope_above);
    }
  };
  far_out(Relu{}, 0, 0, 1);  // above 0: the value is x itself
  far_out(Gelu{}, 0, 0, 1);
  far_out(GeluTanh{}, 0, 0, 1);
  far_out(Silu{}, 0, 0, 1);
  far_out(Tanh{}, -1, 1, 0);
  far_out(Sigmoid{}, 0, 1, 0);
}

TEST_CASE_TEMPLATE("NaN stays NaN", F, Relu, Identity, Gelu, GeluTanh, Silu, Tanh, Sigmoid) {
  CHECK(std::isnan(F::value(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(F::value(std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE("small inputs keep their relative accuracy") {
  for (const float x : {1e-3F, 1e-6F, 1e-20F, -1e-6F}) {
    CHECK(Tanh::value(x) == doctest::Approx(std::tanh(static_cast<double>(x))).epsilon(3e-7));
    CHECK(Gelu::value(x) == doctest::Approx(plain(Activation::gelu, x)).epsilon(3e-7));
    CHECK(Silu::value(x) == doctest::Approx(plain(Activation::silu, x)).epsilon(3e-7));
  }
  CHECK(Tanh::value(0.0F) == 0.0F);
  CHECK(Gelu::value(0.0F) == 0.0F);
  CHECK(Sigmoid::value(0.0F) == 0.5F);
}

TEST_CASE("visit finds the function object of each activation") {
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
        Activation::silu, Activation::tanh, Activation::sigmoid}) {
    CHECK(visit(activation, [](auto f) { return decltype(f)::kind; }) == activation);
  }
  CHECK(name(Activation::none) == "none");
  CHECK(name(Activation::gelu_tanh) == "gelu_tanh");
  CHECK(name(Activation::sigmoid) == "sigmoid");
  CHECK(detail::function_name<Silu>() == "silu");
  CHECK(detail::function_name<HardSwish>() == "HardSwish");
}

TEST_CASE("powers of two are exact to a few bits, coarse ones to far more than the bits of bf16") {
  for (float x = 0; x >= -126; x -= 1.0F / 128) {
    const double exact = std::exp2(static_cast<double>(x));
    CHECK(detail::power_of_two(x) == doctest::Approx(exact).scale(0).epsilon(2e-7));
    CHECK(detail::coarse_power_of_two(x) == doctest::Approx(exact).scale(0).epsilon(6e-5));
  }
  for (const auto power : {detail::power_of_two, detail::coarse_power_of_two}) {
    CHECK(power(0) == 1);
    CHECK(power(-126) > 0);
    CHECK(power(-1e30F) == 0);
    CHECK(std::isnan(power(std::nanf(""))));
  }
}

TEST_CASE_TEMPLATE("square roots have an error of at most 1.1 units in the last place", A, float,
                   double) {
  constexpr A highest = std::numeric_limits<A>::max();
  constexpr A beyond = std::numeric_limits<A>::infinity();
  A worst = 0;
  for (A x = std::numeric_limits<A>::denorm_min(); x < beyond; x *= A(1.0073)) {
    if (x < std::numeric_limits<A>::min()) x *= 2;  // where a smaller factor may change nothing
    const long double exact = std::sqrt(static_cast<long double>(x));
    const A below = static_cast<A>(exact), above = std::nextafter(below, beyond);
    worst = std::max(worst, static_cast<A>(std::abs(detail::square_root(x) - exact) /
                                           (static_cast<long double>(above) - below)));
  }
  CHECK(worst < A(1.1));
  CHECK(std::abs(detail::square_root(highest) / std::sqrt(highest) - 1) <=
        std::numeric_limits<A>::epsilon());
  for (const A x : {A(0), A(1), A(4), beyond}) CHECK(detail::square_root(x) == std::sqrt(x));
  CHECK(std::signbit(detail::square_root(A(-0.0))));
  for (const A x : {A(-1), -beyond, std::numeric_limits<A>::quiet_NaN()})
    CHECK(std::isnan(detail::square_root(x)));
}

TEST_CASE("cosine and sine are exact to the last bits of 1, up to angles of a million") {
  constexpr long double bound = 0x1p-52L;
  for (double x = 1e-9; x < 1.6e6; x *= 1.003)
    for (const double angle : {x, -x}) {
      const detail::CirclePoint point = detail::circle_point(angle);
      CAPTURE(angle);
      CHECK(std::abs(point.cosine - std::cos(static_cast<long double>(angle))) < bound);
      CHECK(std::abs(point.sine - std::sin(static_cast<long double>(angle))) < bound);
    }
  CHECK(detail::circle_point(0).cosine == 1);
  CHECK(detail::circle_point(0).sine == 0);
  for (const double none : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK(std::isnan(detail::circle_point(none).cosine));
    CHECK(std::isnan(detail::circle_point(none).sine));
  }
}

TEST_CASE_TEMPLATE("e to minus infinity is 0, and e to a number that is none is none", A, float,
                   double) {
  CHECK(detail::exponential(static_cast<A>(-infinity)) == 0);
  CHECK(detail::exponential(std::numeric_limits<A>::lowest()) == 0);
  CHECK(detail::exponential_less_one(static_cast<A>(-infinity)) == -1);
  CHECK(std::isnan(detail::exponential(std::numeric_limits<A>::quiet_NaN())));
  for (A x = -89; x <= -80; x += A(1) / 64)  // up to the smallest normal float
    CHECK(std::abs(detail::exponential(x) - std::exp(x)) <= A(2e-7) * std::exp(x) + A(0x1p-126));
}
