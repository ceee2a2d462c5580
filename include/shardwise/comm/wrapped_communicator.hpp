#pragma once
// A communicator around another one, which does something before and after each call.

#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise {

/// Passes every call to `Inner`, which checks the arguments, through
///
///     template <class F>
///     void around(const Call& call, F make);
///
/// of `Self`, which derives from this and calls make() once. It has the same optional features as
/// `Inner`: check level, memory of a device, reads of peers' memory, and collectives that overlap
/// with other work, of which around() sees the call that begins them. A group made by split is
/// Self(a group of Inner).
template <class Self, class Inner>
class WrappedCommunicator
    : public std::conditional_t<BeginsCollectives<Inner>, BeginningCollectives<Self>,
                                Collectives<Self>> {
 public:
  /// The level of checks of redistributions and models on these ranks: that of `Inner`.
  static constexpr CheckLevel check_level = check_level_of<Inner>();
  /// Whether its collectives take memory of a device, as on `Inner`.
  static constexpr bool takes_device_memory = detail::TakesDeviceMemory<Inner>;

  /// The same rank as `inner`.
  explicit WrappedCommunicator(Inner inner) : inner_(std::move(inner)) {}

  /// As of `Inner`.
  constexpr int rank() const { return inner_.rank(); }
  /// As of `Inner`.
  constexpr int size() const { return inner_.size(); }
  /// As of `Inner`.
  constexpr bool compares_calls() const { return detail::compares_calls(inner_); }
  /// Wraps the group that `Inner` makes.
  Self split(int color, int key) {
    return Self(
        result_of(Call{.operation = Operation::split}, [&] { return inner_.split(color, key); }));
  }

  /// As `ReadsPeers` says, if `Inner` has it.
  template <class T, class F>
  requires ReadsPeers<Inner>
  void read_peers(const Call& call, std::span<T> mine, F&& f) {
    Call with_mine = call;
    with_mine.mine = mine.size();
    self().around(with_mine, [&] { inner_.read_peers(call, mine, std::forward<F>(f)); });
  }

 private:
  friend Collectives<Self>;
  friend BeginningCollectives<Self>;

  Self& self() { return static_cast<Self&>(*this); }
  static constexpr bool checks_arguments() { return false; }

  template <class Move>
  void move(const Call& call, const Move& m) {
    self().around(call, [&] { m.on(inner_); });
  }
  template <class Move>
  auto begin(const Call& call, const Move& m) {
    return result_of(call, [&] { return m.begun_on(inner_); });
  }

  /// What `make` returns, which around() calls.
  template <class F>
  auto result_of(const Call& call, F make) {
    std::optional<decltype(make())> result;
    self().around(call, [&] { static_cast<void>(result.emplace(make())); });
    return *std::move(result);
  }

  Inner inner_;
};

}  // namespace shardwise
