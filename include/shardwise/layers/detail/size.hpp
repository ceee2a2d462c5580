#pragma once
// A number of features that the type of a layer may or may not know.

#include <cstddef>
#include <string>

#include "shardwise/core/shape.hpp"

namespace shardwise::detail {

/// A size from the type, or from the constructor where the type says `dynamic`.
template <std::size_t N>
struct Size {
  static constexpr std::size_t value() { return N; }
};
template <>
struct Size<dynamic> {
  std::size_t given;
  constexpr std::size_t value() const { return given; }
};

/// How many of two sizes a layer's type leaves to its constructor.
template <std::size_t In, std::size_t Out>
inline constexpr std::size_t dynamic_among = (In == dynamic ? 1 : 0) + (Out == dynamic ? 1 : 0);

/// The error for another number of sizes than the type of a layer leaves open.
template <class L, std::size_t Given, std::size_t Dynamic>
consteval bool sizes_must_be_dynamic() {
  static_assert(Given == Dynamic,
                "The layer L is given Given sizes at construction, but its type leaves Dynamic of "
                "them open. Give those that are `dynamic` in its type, in their order, and only "
                "those: a size in the type is never given again.");
  return true;
}

/// As it stands in the name of a type: "512" or "dynamic".
inline std::string size_name(std::size_t size) {
  return size == dynamic ? "dynamic" : std::to_string(size);
}

}  // namespace shardwise::detail
