#pragma once
// Readable sizes of memory and messages: 4_MiB.

#include <cstddef>

#include "shardwise/core/error.hpp"

namespace shardwise {

namespace detail {

/// count * unit; a compile error if that is more bytes than a std::size_t can count.
consteval std::size_t bytes_of(unsigned long long count, std::size_t unit) {
  if (count > static_cast<std::size_t>(-1) / unit)
    throw argument_error("more bytes than can be counted");
  return static_cast<std::size_t>(count) * unit;
}

}  // namespace detail

/// Numbers of bytes. Write `using namespace shardwise::byte_literals;` for them:
///
///     static_assert(plan<Mlp, 8>(batch{512}).bytes_sent() < 4_MiB);
inline namespace byte_literals {

///@{
/// n times 1024, 1024² and 1024³ bytes.
consteval std::size_t operator""_KiB(unsigned long long n) {
  return detail::bytes_of(n, std::size_t{1} << 10);
}
consteval std::size_t operator""_MiB(unsigned long long n) {
  return detail::bytes_of(n, std::size_t{1} << 20);
}
consteval std::size_t operator""_GiB(unsigned long long n) {
  return detail::bytes_of(n, std::size_t{1} << 30);
}
///@}

}  // namespace byte_literals

}  // namespace shardwise
