#pragma once
// The error for what cannot be called on a rank.

#include <concepts>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// The error for a function that does not take the communicator C of a rank.
template <class F, class C>
consteval bool must_take_rank() {
  static_assert(std::invocable<F&, C&>,
                "each rank calls f(C&), and F is no function that takes one: give [](C& ranks) { "
                "... }, where C is the communicator that the compiler names here.");
  return true;
}

}  // namespace shardwise::detail
