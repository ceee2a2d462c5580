#pragma once
// How much is looked at before it is done; docs/how-to/choose-checks.md says what that is at each
// level, and what it costs.
//
// The level is chosen where ranks are made, and models and redistributions follow their ranks:
//
//   Unchecked<ThreadCommunicator> ranks(given);                       off, in the type
//   Unchecked<MpiCommunicator> ranks(MpiCommunicator(comm, {.checks = CheckLevel::off}));
//   MpiCommunicator ranks(comm, {.checks = CheckLevel::local});        calls are not compared
//   MpiCommunicator ranks(comm);                                       communicating
//
// It is a type or a number and never a macro, so translation units that choose differently may be
// linked. Thread ranks always compare their calls, because they read each other's memory. At every
// level stay what depends on data (labels, files, numbers that are none) and what finds a shape
// (`output_shape` of a layer).

#include <cstdint>
#include <utility>

#include "shardwise/comm/communicator.hpp"

namespace shardwise {

/// How much is looked at before it is done. MPI itself reports few of the calls that differ between
/// ranks: most give wrong numbers or wait without end, and Open MPI writes a long message past the
/// end of a shorter buffer. So `local` is for a program that has run without an error at
/// `communicating`.
enum class CheckLevel : std::uint8_t {
  off,           ///< nothing: a wrong call is undefined behaviour
  local,         ///< what a rank can see alone: shape_error and argument_error, as in the contract
  communicating  ///< also, ahead of each collective, whether all ranks make the same one
};

/// Ranks on which redistributions and models leave out their local checks. For a program that has
/// run without an error with them.
template <Communicator C>
class Unchecked : public C {
 public:
  /// What redistributions and models on these ranks look at.
  static constexpr CheckLevel check_level = CheckLevel::off;

  /// Stands for the same rank as `ranks`, whose own checks stay as they were made.
  explicit Unchecked(C ranks) : C(std::move(ranks)) {}

  /// A group of the ranks with equal color, as unchecked.
  Unchecked split(int color, int key) { return Unchecked(C::split(color, key)); }
};

/// What redistributions and models on ranks of type C look at: what C says, or `local`. Ranks that
/// wrap others pass it on, as `WrappedCommunicator` does.
template <class C>
consteval CheckLevel check_level_of() {
  if constexpr (requires { C::check_level; }) {
    return C::check_level;
  } else {
    return CheckLevel::local;
  }
}

namespace detail {

/// Whether what runs on ranks of type C looks at what a rank can see alone.
template <class C>
consteval bool checks_locally() {
  return check_level_of<C>() != CheckLevel::off;
}

}  // namespace detail

}  // namespace shardwise
