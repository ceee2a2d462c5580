// Conversions of the two-byte types, against an oracle that searches their values in double.

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "shardwise/core/dtype.hpp"

using namespace shardwise;

namespace {

/// What the format says that `bits` stand for: `exponent_bits` of exponent, `mantissa_bits` of
/// mantissa. Exact in double for both types.
double decode(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const std::uint32_t top = (1U << exponent_bits) - 1;
  const std::uint32_t exponent = (bits >> mantissa_bits) & top;
  const std::uint32_t mantissa = bits & ((1U << mantissa_bits) - 1);
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == top)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(double{1} * mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(double{1} * (mantissa + (1U << mantissa_bits)),
                           static_cast<int>(exponent) - bias - mantissa_bits);
}

template <class T>
struct Format;
template <>
struct Format<bf16> {
  static constexpr int exponent_bits = 8, mantissa_bits = 7;
};
template <>
struct Format<fp16> {
  static constexpr int exponent_bits = 5, mantissa_bits = 10;
};

template <class T>
double decode(std::uint32_t bits) {
  return decode(bits, Format<T>::exponent_bits, Format<T>::mantissa_bits);
}

/// The bits of the value nearest to |x|, of two equally near ones the even one, by bisection of the
/// magnitudes 0, 1, 2, ... which are in ascending order. Infinity stands where the next power of
/// two would be.
template <class T>
std::uint16_t nearest(double x) {
  constexpr std::uint32_t infinity = ((1U << Format<T>::exponent_bits) - 1)
                                     << Format<T>::mantissa_bits;
  const std::uint32_t sign = std::signbit(x) ? 0x8000U : 0U;
  const double beyond = 2 * decode<T>(infinity - (1U << Format<T>::mantissa_bits));
  const auto magnitude_of = [&](std::uint32_t bits) {
    return bits == infinity ? beyond : decode<T>(bits);
  };
  const double magnitude = std::fabs(x);
  if (magnitude >= beyond) return static_cast<std::uint16_t>(sign | infinity);
  std::uint32_t below = 0;
  std::uint32_t above = infinity;
  while (above - below > 1) {
    const std::uint32_t middle = (below + above) / 2;
    (magnitude_of(middle) <= magnitude ? below : above) = middle;
  }
  const double down = magnitude - magnitude_of(below);
  const double up = magnitude_of(above) - magnitude;
  const bool take_below = down < up || (down == up && below % 2 == 0);
  return static_cast<std::uint16_t>(sign | (take_below ? below : above));
}

/// Counts instead of checking each: there are millions.
template <class T>
int wrong_roundings(const std::vector<float>& values) {
  int wrong = 0;
  for (const float value : values)
    for (const float x : {value, -value})
      if (T(x).bits != nearest<T>(double{x})) ++wrong;
  return wrong;
}

}  // namespace

TEST_CASE_TEMPLATE("every bit pattern widens to the value of the format", T, bf16, fp16) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    T value;
    value.bits = static_cast<std::uint16_t>(bits);
    const double expected = decode<T>(bits);
    const double got = static_cast<float>(value);
    if (std::isnan(expected) ? !std::isnan(got)
                             : (got != expected || std::signbit(got) != std::signbit(expected)))
      ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("every bit pattern that is a number comes back", T, bf16, fp16) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    T value;
    value.bits = static_cast<std::uint16_t>(bits);
    const T back(static_cast<float>(value));
    if (std::isnan(decode<T>(bits)) ? !std::isnan(static_cast<float>(back))
                                    : back.bits != value.bits)
      ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("ties between neighbours, and a float's breadth beside them", T, bf16, fp16) {
  constexpr std::uint32_t infinity = ((1U << Format<T>::exponent_bits) - 1)
                                     << Format<T>::mantissa_bits;
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const double low = decode<T>(bits);
    const double high = bits + 1 == infinity
                            ? 2 * decode<T>(infinity - (1U << Format<T>::mantissa_bits))
                            : decode<T>(bits + 1);
    const auto tie = static_cast<float>((low + high) / 2);  // exact, or to be rounded all the same
    values.insert(values.end(), {static_cast<float>(low), tie, std::nextafter(tie, 0.F),
                                 std::nextafter(tie, std::numeric_limits<float>::infinity())});
  }
  CHECK(wrong_roundings<T>(values) == 0);
}

TEST_CASE_TEMPLATE("a million floats of any bits", T, bf16, fp16) {
  std::vector<float> values;
  std::uint32_t bits = 1;
  while (values.size() < 1'000'000) {
    bits = bits * 1664525U + 1013904223U;
    const auto value = std::bit_cast<float>(bits ^ (bits >> 15));
    if (!std::isnan(value)) values.push_back(value);
  }
  CHECK(wrong_roundings<T>(values) == 0);
}

TEST_CASE_TEMPLATE("the ends of the range", T, bf16, fp16) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(wrong_roundings<T>({0.F, infinity, std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::min(),
                            std::numeric_limits<float>::denorm_min(), 1.F, 65504.F, 65519.F,
                            65520.F, 65536.F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F}) == 0);
  CHECK(static_cast<float>(T(infinity)) == infinity);
  CHECK(static_cast<float>(T(-infinity)) == -infinity);
  CHECK(std::signbit(static_cast<float>(T(-0.F))));
}

TEST_CASE_TEMPLATE("no NaN becomes a number or infinity", T, bf16, fp16) {
  for (const std::uint32_t mantissa :
       {1U, 0x1fffU, 0x2000U, 0xffffU, 0x1'0000U, 0x40'0000U, 0x7f'ffffU}) {
    for (const std::uint32_t sign : {0U, 0x8000'0000U}) {
      const auto nan = std::bit_cast<float>(sign | 0x7f80'0000U | mantissa);
      CHECK(std::isnan(static_cast<float>(T(nan))));
      CHECK(std::signbit(static_cast<float>(T(nan))) == (sign != 0));
    }
  }
}

TEST_CASE("sizes and names go with the types") {
  CHECK(size_of(dtype_v<float>) == sizeof(float));
  CHECK(size_of(dtype_v<double>) == sizeof(double));
  CHECK(size_of(dtype_v<bf16>) == sizeof(bf16));
  CHECK(size_of(dtype_v<fp16>) == sizeof(fp16));
  CHECK(size_of(dtype_v<std::int32_t>) == sizeof(std::int32_t));
  CHECK(size_of(dtype_v<std::int64_t>) == sizeof(std::int64_t));
  CHECK(size_of(dtype_v<std::uint8_t>) == sizeof(std::uint8_t));
  CHECK(name(dtype_v<float>) == "float32");
  CHECK(name(dtype_v<double>) == "float64");
  CHECK(name(dtype_v<bf16>) == "bfloat16");
  CHECK(name(dtype_v<fp16>) == "float16");
  CHECK(name(dtype_v<std::int32_t>) == "int32");
  CHECK(name(dtype_v<std::int64_t>) == "int64");
  CHECK(name(dtype_v<std::uint8_t>) == "uint8");
}

static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2);
static_assert(bf16{}.bits == 0 && fp16{}.bits == 0);
static_assert(bf16(1.F).bits == 0x3f80 && fp16(1.F).bits == 0x3c00);
static_assert(fp16(65520.F).bits == 0x7c00 && fp16(65519.F).bits == 0x7bff);
static_assert(std::same_as<accumulate_t<bf16>, float> && std::same_as<accumulate_t<fp16>, float>);
static_assert(std::same_as<accumulate_t<double>, double>);
static_assert(std::same_as<accumulate_t<std::int32_t>, std::int32_t>);
static_assert(detail::accumulated(Dtype::bfloat16) == Dtype::float32);
static_assert(detail::accumulated(Dtype::float16) == Dtype::float32);
static_assert(detail::accumulated(Dtype::float64) == Dtype::float64);
static_assert(Real<float> && Real<double> && Real<bf16> && Real<fp16>);
static_assert(!Real<std::int32_t> && !Real<const float> && !Real<long double>);
static_assert(Element<std::uint8_t> && !Element<char> && !Element<bool> && !Element<long double>);
// Rounding is asked for, never implied.
static_assert(!std::is_convertible_v<float, bf16> && !std::is_convertible_v<float, fp16>);
static_assert(std::is_trivially_copyable_v<bf16> && std::is_trivially_copyable_v<fp16>);
