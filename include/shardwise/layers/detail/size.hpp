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

/// As it stands in the name of a type: "512" or "dynamic".
inline std::string size_name(std::size_t size) {
  return size == dynamic ? "dynamic" : std::to_string(size);
}

}  // namespace shardwise::detail
