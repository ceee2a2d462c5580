#pragma once
// A part of an array.

#include <cstddef>
#include <span>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// `size` elements from `first` on. Called in a template, it costs clang nothing until the template
/// is made; the constructor of std::span makes about 80 classes there for each T, in every program.
/// Not constexpr: clang makes the body of such a function where it is named.
template <class T>
std::span<T> span_of(T* first, std::size_t size) {
  return {first, size};
}

}  // namespace shardwise::detail
