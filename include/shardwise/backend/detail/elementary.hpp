#pragma once
// The exponential and its relatives, written so that a loop over them vectorises.
//
// Calls of the standard library do not vectorise, so an activation of a layer's output would take
// as long as the product before it. So the float versions have no calls and no branches; they keep
// NaN and neither overflow nor trap. The double versions call the library.
//
// All are constexpr, so that nvcc compiles them for a device too. They are templates, since only a
// template may be constexpr and call functions that are not constexpr: the library's.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// `condition ? a : b` on the bits. (g++ compiles the plain form to a branch if a is a constant,
/// and then the loop around it does not vectorise.)
template <class A>
constexpr A select(bool condition, A a, A b) {
  using Bits = std::conditional_t<sizeof(A) == 4, std::uint32_t, std::uint64_t>;
  const Bits mask = Bits{0} - static_cast<Bits>(condition);
  return std::bit_cast<A>((std::bit_cast<Bits>(a) & mask) | (std::bit_cast<Bits>(b) & ~mask));
}

/// `x`, at least `lowest`; NaN stays NaN.
template <class A>
constexpr A at_least(A x, A lowest) {
  return select(x < lowest, lowest, x);
}

/// `x`, at most `highest`; NaN stays NaN.
template <class A>
constexpr A at_most(A x, A highest) {
  return select(x > highest, highest, x);
}

/// A better r for 1 / sqrt(x), whose relative error is 2.5 times the third power of that of r:
/// Householder's method of the third order.
template <class A>
constexpr A closer_inverse_root(A x, A r) {
  const A square = x * r * r;  // 1, if r is exact
  return r * (A(1.875) - square * (A(1.25) - A(0.375) * square));
}

/// The square root of x, with an error of at most 1.1 units in the last place; as std::sqrt for
/// zeros, infinities, NaN and numbers below 0. (A call of std::sqrt may set errno, so a loop over
/// it does not vectorise.) The first guess is that of Lomont 2003, whose relative error is below
/// 0.0018.
template <class A>
constexpr A square_root(A x) {
  constexpr bool is_float = sizeof(A) == 4;
  using Bits = std::conditional_t<is_float, std::uint32_t, std::uint64_t>;
  constexpr Bits half_of_exponents = static_cast<Bits>(is_float ? 0x5F375A86 : 0x5FE6EB50C7B537A9);
  constexpr A least = is_float ? A(0x1p-100) : A(0x1p-900);  // below it, numbers are made larger
  const bool is_small = x < least;
  const A scaled = x * select(is_small, is_float ? A(0x1p48) : A(0x1p200), A(1));
  const A guess = std::bit_cast<A>(half_of_exponents - (std::bit_cast<Bits>(scaled) >> 1));
  A inverse = closer_inverse_root(scaled, guess);
  if constexpr (!is_float) inverse = closer_inverse_root(scaled, inverse);
  const A near = scaled * inverse;
  const A root = near + A(0.5) * inverse * (scaled - near * near);
  const A unscaled = root * select(is_small, is_float ? A(0x1p-24) : A(0x1p-100), A(1));
  constexpr A highest = std::numeric_limits<A>::max(), nan = std::numeric_limits<A>::quiet_NaN();
  return select(x <= highest, select(x >= A(0), unscaled, nan), x);
}

/// Above this magnitude exp leaves the normal numbers of A, or is close to it.
template <class A>
inline constexpr A exp_limit = std::is_same_v<A, float> ? A(87) : A(708);

/// e^x = scale * e^rest, where scale is a power of two and |rest| is at most ln2 / 2.
struct ReducedExp {
  float scale;
  float rest;
};

/// For x in [-88, 87]: writes x as n ln2 + rest. The scale is 0 for n = -127, so below -87.7.
constexpr ReducedExp reduce_exp(float x) {
  constexpr float log2e = 1.44269504F;
  constexpr float ln2_high = 0.693359375F;  // nine bits, so that n * ln2_high is exact
  constexpr float ln2_low = -2.12194440e-4F;
  constexpr float rounder = 12582912.0F;  // 1.5 * 2^23: its addition leaves n in the lowest bits

  const float shifted = x * log2e + rounder;
  const float n = shifted - rounder;
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
  return {std::bit_cast<float>(exponent), (x - n * ln2_high) - n * ln2_low};
}

/// e^x = scale * (1 + excess), where scale is a power of two and |excess| is at most sqrt(2) - 1.
struct SplitExp {
  float scale;
  float excess;
};

/// Sums e^rest - 1 by its Taylor series to the seventh power, whose remainder is below 6e-9. x is
/// clamped to [-88, 87] first.
constexpr SplitExp split_exp(float x) {
  const auto [scale, rest] = reduce_exp(at_least(at_most(x, exp_limit<float>), -88.0F));
  float series = 1.0F / 5040;
  series = series * rest + 1.0F / 720;
  series = series * rest + 1.0F / 120;
  series = series * rest + 1.0F / 24;
  series = series * rest + 1.0F / 6;
  series = series * rest + 0.5F;
  series = series * rest + 1.0F;
  return {scale, series * rest};
}

/// x = n + rest with a whole number n and |rest| at most 1/2; scale = 2^n.
struct ReducedPower {
  float scale;
  float rest;
};

/// For x <= 0; the scale is 0 for n = -127, so below -126.5.
constexpr ReducedPower reduce_power(float x) {
  constexpr float rounder = 12582912.0F + 127;  // leaves n + 127, an exponent, in the lowest bits
  const float clamped = at_least(x, -127.0F);
  const float shifted = clamped + rounder;
  return {std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23),
          clamped - (shifted - rounder)};
}

/// 2^x for x <= 0, in three quarters of the time of e^x by `exponential`, and as exact. Below
/// -126.5 it is 0.
constexpr float power_of_two(float x) {
  const auto [scale, rest] = reduce_power(x);
  float series = 1.52527338e-5F;  // ln2^7 / 7!
  series = series * rest + 1.54035304e-4F;
  series = series * rest + 1.33335581e-3F;
  series = series * rest + 9.61812911e-3F;
  series = series * rest + 5.55041087e-2F;
  series = series * rest + 2.40226507e-1F;
  series = series * rest + 6.93147181e-1F;
  series = series * rest + 1.0F;
  return scale * series;
}

/// The same for a result that is rounded to the 8 bits of bf16: the series ends with the fourth
/// power, so the relative error is below 6e-5.
constexpr float coarse_power_of_two(float x) {
  const auto [scale, rest] = reduce_power(x);
  float series = 9.61812911e-3F;  // ln2^4 / 4!
  series = series * rest + 5.55041087e-2F;
  series = series * rest + 2.40226507e-1F;
  series = series * rest + 6.93147181e-1F;
  series = series * rest + 1.0F;
  return scale * series;
}

/// e^x; in float for x in [-87, 87], the value at 87 above, and 0 below -87.7, so that what is
/// masked by minus infinity has no weight.
template <class A>
constexpr A exponential(A x) {
  if constexpr (std::is_same_v<A, float>) {
    const SplitExp split = split_exp(x);
    return split.scale + split.scale * split.excess;
  } else {
    return std::exp(x);
  }
}

/// e^x - 1, accurate near zero too; in float with the value at 87 above that.
template <class A>
constexpr A exponential_less_one(A x) {
  if constexpr (std::is_same_v<A, float>) {
    const SplitExp split = split_exp(x);
    return split.scale * split.excess + (split.scale - 1.0F);
  } else {
    return std::expm1(x);
  }
}

/// log(1 + t) for t in [0, 1], accurate near zero too. Float: 2 atanh(t / (2 + t)) by its series to
/// the thirteenth power, whose remainder is below 1e-8.
template <class A>
constexpr A log_of_one_plus(A t) {
  if constexpr (std::is_same_v<A, float>) {
    const float s = t / (2.0F + t);
    const float square = s * s;
    float series = 2.0F / 13;
    series = series * square + 2.0F / 11;
    series = series * square + 2.0F / 9;
    series = series * square + 2.0F / 7;
    series = series * square + 2.0F / 5;
    series = series * square + 2.0F / 3;
    series = series * square + 2.0F;
    return series * s;
  } else {
    return std::log1p(t);
  }
}

/// A point of the unit circle.
struct CirclePoint {
  double cosine;
  double sine;
};

/// Cosine and sine of |x| up to 1.6e6, each with an absolute error below 2^-52; beyond, up to 2^50,
/// with one of half a unit in the last place of x more. Beyond that x says no angle, and the point
/// is any of those near the circle. NaN for infinities and NaN. Reduction by pi/2 in three parts,
/// of which the first two have 33 bits, and series for up to pi/4, all of fdlibm (Sun Microsystems
/// 1993: e_rem_pio2.c, k_sin.c, k_cos.c).
constexpr CirclePoint circle_point(double x) {
  constexpr double rounder = 6755399441055744.0;  // 1.5 * 2^52: leaves n in the lowest bits
  const double shifted = x * 0.63661977236758134308 + rounder;
  const double n = shifted - rounder;
  const double rest = ((x - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11) -
                      n * 2.02226624879595063154e-21;
  const double r = at_least(at_most(rest, 0.8), -0.8);  // pi/4 is 0.785
  const double z = r * r;
  double odd = 1.58969099521155010221e-10;
  odd = odd * z - 2.50507602534068634195e-08;
  odd = odd * z + 2.75573137070700676789e-06;
  odd = odd * z - 1.98412698298579493134e-04;
  odd = odd * z + 8.33333333332248946124e-03;
  odd = odd * z - 1.66666666666666324348e-01;
  double even = -1.13596475577881948265e-11;
  even = even * z + 2.08757232129817482790e-09;
  even = even * z - 2.75573143513906633035e-07;
  even = even * z + 2.48015872894767294178e-05;
  even = even * z - 1.38888888888741095749e-03;
  even = even * z + 4.16666666666666019037e-02;
  const double sine = r + r * z * odd;
  const double cosine = 1.0 - (0.5 * z - z * z * even);
  const auto quadrant = std::bit_cast<std::uint64_t>(shifted);  // in its two lowest bits
  const bool turned = (quadrant & 1U) != 0;
  const double along = select(turned, sine, cosine);
  const double across = select(turned, cosine, sine);
  return {select(((quadrant + 1) & 2U) != 0, -along, along),
          select((quadrant & 2U) != 0, -across, across)};
}

/// 1 / (1 + e^-x).
template <class A>
constexpr A logistic(A x) {
  return A(1) / (A(1) + exponential(-x));
}

/// The hyperbolic tangent, -m / (2 + m) with m = e^(-2 |x|) - 1: accurate near zero too.
template <class A>
constexpr A hyperbolic_tangent(A x) {
  if constexpr (std::is_same_v<A, float>) {
    const float m = exponential_less_one(-2.0F * std::fabs(x));
    return std::copysign(m / (2.0F + m), x);
  } else {
    return std::tanh(x);
  }
}

/// The distribution function of the standard normal, for |x| <= 13 (float) or 37 (double).
/// Float: erfc by formula 7.1.26 of Abramowitz and Stegun, absolute error below 1e-7.
template <class A>
constexpr A normal_distribution(A x) {
  if constexpr (std::is_same_v<A, float>) {
    const float a = std::fabs(x) * 0.707106781F;
    const float t = 1.0F / (1.0F + 0.3275911F * a);
    float polynomial = 1.061405429F;
    polynomial = polynomial * t - 1.453152027F;
    polynomial = polynomial * t + 1.421413741F;
    polynomial = polynomial * t - 0.284496736F;
    polynomial = polynomial * t + 0.254829592F;
    const float upper_tail = 0.5F * polynomial * t * exponential(-a * a);
    return select(x < 0.0F, upper_tail, 1.0F - upper_tail);
  } else {
    return 0.5 * std::erfc(-x * 0.70710678118654752440);
  }
}

}  // namespace shardwise::detail
