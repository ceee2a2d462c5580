#pragma once
// Errors that say what a communicator lacks, before anything calls it.

#include "shardwise/comm/communicator.hpp"

namespace shardwise::detail {

/// The error for a type that is not a communicator. The compiler adds the call that fails.
template <class C>
consteval bool must_be_communicator() {
  if constexpr (requires { typename C::template Linear<float>; }) {
    static_assert(Communicator<C>,
                  "C is a backend, where a Context names its communicator. The backend is second "
                  "and the communicator third: Context<float, Reference, ThreadCommunicator>.");
  } else if constexpr (!HasCollectives<C>) {
    static_assert(
        HasCollectives<C>,
        "C is no communicator: it lacks an operation, or one does not take every Element. "
        "Derive it from Collectives<C>, which has all of them, and write what "
        "comm/collectives.hpp asks for.");
  } else {
    static_assert(Communicator<C>,
                  "The communicator C lacks `int rank() const`, `int size() const` or "
                  "`C split(int color, int key)`, a group of the ranks with equal color. Write "
                  "them as comm/communicator.hpp says.");
  }
  return true;
}

}  // namespace shardwise::detail
