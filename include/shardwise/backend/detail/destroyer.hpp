#pragma once
// Owners of a C library's objects: a unique_ptr that calls the matching function of the library.

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// `std::unique_ptr<T, Destroyer<destroy_t>>` destroys its object by `destroy_t(object)`, and
/// ignores the result.
template <auto Destroy>
struct Destroyer {
  template <class Object>
  void operator()(Object* object) const noexcept {
    Destroy(object);
  }
};

}  // namespace shardwise::detail
