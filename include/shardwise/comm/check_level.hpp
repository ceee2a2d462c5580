#pragma once
// How much is checked before a call; docs/how-to/choose-checks.md says what each level checks and
// what it costs.
//
// Choose the level when you make ranks. Models and redistributions use the level of their ranks:
//
//   Unchecked<ThreadCommunicator> ranks(given);                       off, in the type
//   Unchecked<MpiCommunicator> ranks(MpiCommunicator(comm, {.checks = CheckLevel::off}));
//   MpiCommunicator ranks(comm, {.checks = CheckLevel::local});        calls are not compared
//   MpiCommunicator ranks(comm);                                       communicating
//
// When ranks of MPI or NCCL are made, the variable SHARDWISE_CHECKS (off, local or communicating)
// overrules the level that the program names.
//
// It is a type or a value and never a macro, so translation units with different levels may be
// linked. Thread ranks always compare their calls, because they read each other's memory. Checks
// that depend on data (labels, files, NaN and infinity), and those that compute a shape
// (`output_shape` of a layer), are made at every level.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "shardwise/comm/communicator.hpp"

namespace shardwise {

/// How much is checked before a call. MPI itself reports few of the calls that differ between
/// ranks: most give wrong numbers or wait until the time-out, and Open MPI writes a long message
/// past the end of a shorter buffer. So use `local` only for a program that has run without an
/// error at `communicating`.
enum class CheckLevel : std::uint8_t {
  off,    ///< nothing: a wrong call is undefined behaviour
  local,  ///< what one rank can check alone: shape_error and argument_error, as in the contract
  communicating  ///< also, before each collective, that all ranks make the same call
};

/// "communicating".
constexpr std::string_view name(CheckLevel level) {
  constexpr std::string_view names[] = {"off", "local", "communicating"};
  return names[static_cast<std::size_t>(level)];
}

/// Ranks on which redistributions and models make no local checks. For a program that has run with
/// these checks without an error.
template <Communicator C>
class Unchecked : public C {
 public:
  /// The level of checks of redistributions and models on these ranks.
  static constexpr CheckLevel check_level = CheckLevel::off;

  /// The same rank as `ranks`, which still makes its own checks.
  explicit Unchecked(C ranks) : C(std::move(ranks)) {}

  /// The group of the ranks with equal color, also unchecked.
  Unchecked split(int color, int key) { return Unchecked(C::split(color, key)); }
};

/// The level of checks of redistributions and models on ranks of type C: that of C, or `local` if C
/// has none. A wrapper such as `WrappedCommunicator` has the level of the inner communicator.
template <class C>
consteval CheckLevel check_level_of() {
  if constexpr (requires { C::check_level; }) {
    return C::check_level;
  } else {
    return CheckLevel::local;
  }
}

namespace detail {

/// Whether ranks that compare their calls do so: those with a member `compares_calls()` that says
/// so, unless they are Unchecked.
template <class C>
constexpr bool compares_calls([[maybe_unused]] const C& ranks) {
  if constexpr (check_level_of<C>() == CheckLevel::off || !requires { ranks.compares_calls(); }) {
    return false;
  } else {
    return ranks.compares_calls();
  }
}

/// Whether redistributions and models on ranks of type C make local checks.
template <class C>
consteval bool checks_locally() {
  return check_level_of<C>() != CheckLevel::off;
}

}  // namespace detail

}  // namespace shardwise
