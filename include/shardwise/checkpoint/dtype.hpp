#pragma once
// The number types of a safetensors file, and conversions to and from the types of models.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// A number type of the format: its name in the format, and the bits of one element.
struct FileDtype {
  std::string_view name;  ///< "BF16"
  std::size_t bits = 0;   ///< of one element

  friend constexpr bool operator==(const FileDtype& a, const FileDtype& b) {
    return a.name == b.name;
  }
};

/// All number types of the format. Seven of them can be read: see `file_dtype_v`.
/// source   safetensors 0.8: F4, F6 and F8 are small floats, C64 is two F32
inline constexpr std::array<FileDtype, 22> file_dtypes{{
    {"BOOL", 8}, {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"I16", 16}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32}, {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64}, {"U64", 64},
}};

/// The number type of that name; nothing if the format has none.
constexpr std::optional<FileDtype> find_file_dtype(std::string_view name) {
  for (const FileDtype& dtype : file_dtypes) {
    if (dtype.name == name) return dtype;
  }
  return std::nullopt;
}

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian, and are read and written as they lie in "
              "memory: this machine needs a conversion that is not there.");

template <Element T>
constexpr std::string_view file_dtype_name() {
  if constexpr (std::same_as<T, float>) return "F32";
  if constexpr (std::same_as<T, double>) return "F64";
  if constexpr (std::same_as<T, bf16>) return "BF16";
  if constexpr (std::same_as<T, fp16>) return "F16";
  if constexpr (std::same_as<T, std::int32_t>) return "I32";
  if constexpr (std::same_as<T, std::int64_t>) return "I64";
  if constexpr (std::same_as<T, std::uint8_t>) return "U8";
}

/// The number type of T in the format.
template <Element T>
inline constexpr FileDtype file_dtype_v = *find_file_dtype(detail::file_dtype_name<T>());

/// Whether elements of `dtype` can be converted to other such dtypes: those of models.
constexpr bool is_loadable(const FileDtype& dtype) {
  return dtype == file_dtype_v<float> || dtype == file_dtype_v<double> ||
         dtype == file_dtype_v<bf16> || dtype == file_dtype_v<fp16>;
}

/// Copies `count` elements of From in the file to elements of To in memory, each `stride` bytes
/// after the one before. Rounds as the types do; double to the two-byte types via float.
template <Element From, Element To>
void copy_elements(const std::byte* in, std::byte* out, std::size_t stride, std::size_t count) {
  if constexpr (std::same_as<From, To>) {
    if (stride == sizeof(To)) {
      if (count > 0) std::memcpy(out, in, count * sizeof(To));
      return;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, in + i * sizeof(From), sizeof(From));
    const auto wide = static_cast<accumulate_t<From>>(value);
    const auto converted = static_cast<To>(static_cast<accumulate_t<To>>(wide));
    std::memcpy(out + i * stride, &converted, sizeof(To));
  }
}

/// As above, from elements of any loadable dtype; to whole numbers only from the same dtype.
template <Element To>
void load_elements(const FileDtype& from, const std::byte* in, std::byte* out, std::size_t stride,
                   std::size_t count) {
  if constexpr (!Real<To>) {
    copy_elements<To, To>(in, out, stride, count);
  } else {
    if (from == file_dtype_v<float>) return copy_elements<float, To>(in, out, stride, count);
    if (from == file_dtype_v<double>) return copy_elements<double, To>(in, out, stride, count);
    if (from == file_dtype_v<bf16>) return copy_elements<bf16, To>(in, out, stride, count);
    copy_elements<fp16, To>(in, out, stride, count);
  }
}

}  // namespace shardwise::detail
