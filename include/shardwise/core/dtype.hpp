#pragma once
// The number types that tensors hold, and the type in which each is summed.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "shardwise/version.hpp"

namespace shardwise {

/// Brain float: the upper half of a float. Converts by rounding to nearest, ties to even.
struct bf16 {
  std::uint16_t bits = 0;  ///< sign, 8 of exponent, 7 of fraction

  constexpr bf16() = default;
  /// Rounded to the nearest; a NaN stays one.
  constexpr explicit bf16(float value) : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  /// Exact.
  constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

 private:
  static constexpr std::uint16_t round(std::uint32_t f) {
    const bool is_nan = (f & 0x7fff'ffffU) > 0x7f80'0000U;
    if (is_nan) return static_cast<std::uint16_t>((f >> 16) | 0x40U);
    return static_cast<std::uint16_t>((f + 0x7fffU + ((f >> 16) & 1U)) >> 16);
  }
};

/// IEEE 754 binary16. Converts by rounding to nearest, ties to even; overflow gives infinity.
struct fp16 {
  std::uint16_t bits = 0;  ///< sign, 5 of exponent, 10 of fraction

  constexpr fp16() = default;
  /// Rounded to the nearest; a NaN stays one.
  constexpr explicit fp16(float value) : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  /// Exact.
  constexpr operator float() const { return widen(bits); }

 private:
  static constexpr std::uint16_t round(std::uint32_t f) {
    const auto sign = static_cast<std::uint16_t>((f >> 16) & 0x8000U);
    const std::uint32_t magnitude = f & 0x7fff'ffffU;
    if (magnitude > 0x7f80'0000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
    if (magnitude >= 0x4780'0000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
    if (magnitude >= 0x3880'0000U) {  // a normal number of binary16
      const std::uint32_t rebased = magnitude - 0x3800'0000U;
      return static_cast<std::uint16_t>(sign | shift_to_even(rebased, 13));
    }
    const std::uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return sign;  // below half of the smallest subnormal
    const std::uint32_t mantissa = (magnitude & 0x7f'ffffU) | 0x80'0000U;
    return static_cast<std::uint16_t>(sign | shift_to_even(mantissa, 126 - exponent));
  }

  static constexpr std::uint32_t shift_to_even(std::uint32_t value, std::uint32_t by) {
    const std::uint32_t half = 1U << (by - 1);
    return (value + half - 1 + ((value >> by) & 1U)) >> by;
  }

  static constexpr float widen(std::uint16_t h) {
    const std::uint32_t sign = (h & 0x8000U) << 16;
    const std::uint32_t exponent = (h >> 10) & 0x1fU;
    const std::uint32_t mantissa = h & 0x3ffU;
    if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f80'0000U | (mantissa << 13));
    if (exponent != 0)
      return std::bit_cast<float>(sign | ((exponent + 112) << 23) | mantissa << 13);
    const float subnormal = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -subnormal : subnormal;
  }
};

/// The number types, as values for messages and collectives.
enum class Dtype : std::uint8_t { float32, float64, bfloat16, float16, int32, int64, uint8 };

/// "float32".
constexpr std::string_view name(Dtype type) {
  constexpr std::string_view names[] = {"float32", "float64", "bfloat16", "float16",
                                        "int32",   "int64",   "uint8"};
  return names[static_cast<std::size_t>(type)];
}

/// Bytes of one element.
constexpr std::size_t size_of(Dtype type) {
  constexpr std::size_t sizes[] = {4, 8, 2, 2, 4, 8, 1};
  return sizes[static_cast<std::size_t>(type)];
}

namespace detail {
template <class T>
struct dtype_of;
template <>
struct dtype_of<float> : std::integral_constant<Dtype, Dtype::float32> {};
template <>
struct dtype_of<double> : std::integral_constant<Dtype, Dtype::float64> {};
template <>
struct dtype_of<bf16> : std::integral_constant<Dtype, Dtype::bfloat16> {};
template <>
struct dtype_of<fp16> : std::integral_constant<Dtype, Dtype::float16> {};
template <>
struct dtype_of<std::int32_t> : std::integral_constant<Dtype, Dtype::int32> {};
template <>
struct dtype_of<std::int64_t> : std::integral_constant<Dtype, Dtype::int64> {};
template <>
struct dtype_of<std::uint8_t> : std::integral_constant<Dtype, Dtype::uint8> {};
}  // namespace detail

/// A type that collectives can move and reduce.
template <class T>
concept Element = requires {
  detail::dtype_of<T>::value;
};

/// A type that layers compute with.
template <class T>
concept Real = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bf16> ||
    std::same_as<T, fp16>;

/// The Dtype of T: `dtype_v<bf16>` is `Dtype::bfloat16`.
template <Element T>
inline constexpr Dtype dtype_v = detail::dtype_of<T>::value;

/// The type in which sums of T are kept: float for the two-byte types, T itself otherwise.
template <Element T>
using accumulate_t = std::conditional_t<std::same_as<T, bf16> || std::same_as<T, fp16>, float, T>;

namespace detail {

/// The Dtype of accumulate_t of a type with this Dtype.
constexpr Dtype accumulated(Dtype type) {
  return type == Dtype::bfloat16 || type == Dtype::float16 ? Dtype::float32 : type;
}

}  // namespace detail

}  // namespace shardwise
