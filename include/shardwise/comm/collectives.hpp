#pragma once
// The operations of a communicator, for all communicators: each derives from them and moves the
// data.

#include <span>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise {

/// The operations of `Communicator` for `Self`, which derives from this. Each checks its arguments,
/// describes the call, and passes both to Self. Self has rank(), size(), split(color, key) and, for
/// each type of `shardwise::moves`,
///
///     template <class T>
///     void move(const Call& call, const moves::AllReduce<T>& m);
///
/// which does it as `Communicator` says; its arguments are already checked. A Self that may leave
/// out the checks also has `bool checks_arguments()`. These may be private if `Collectives<Self>`
/// is a friend.
template <class Self>
class Collectives {
 public:
  /// out = the ranks' `in`, reduced.
  template <Element T>
  void all_reduce(detail::InputOf<T> in, std::span<T> out, Reduction reduction = Reduction::sum) {
    make(moves::AllReduce<T>{in, out, reduction});
  }
  /// out = the blocks of all ranks, in order.
  template <Element T>
  void all_gather(detail::InputOf<T> in, std::span<T> out, std::span<const std::size_t> counts) {
    make(moves::AllGather<T>{in, out, counts});
  }
  /// out = the rank's block of the ranks' `in`, reduced.
  template <Element T>
  void reduce_scatter(detail::InputOf<T> in, std::span<T> out, std::span<const std::size_t> counts,
                      Reduction reduction = Reduction::sum) {
    make(moves::ReduceScatter<T>{in, out, counts, reduction});
  }
  /// data = the root's data.
  template <Element T>
  void broadcast(std::span<T> data, int root) {
    make(moves::Broadcast<T>{data, root});
  }
  /// all_gather, on the root alone.
  template <Element T>
  void gather(detail::InputOf<T> in, std::span<T> out, std::span<const std::size_t> counts,
              int root) {
    make(moves::Gather<T>{in, out, counts, root});
  }
  /// out = the rank's block of the root's `in`.
  template <Element T>
  void scatter(detail::InputOf<T> in, std::span<T> out, std::span<const std::size_t> counts,
               int root) {
    make(moves::Scatter<T>{in, out, counts, root});
  }
  /// Block r of `out` = the block that rank r has for this one.
  template <Element T>
  void all_to_all(detail::InputOf<T> in, std::span<const std::size_t> sent, std::span<T> out,
                  std::span<const std::size_t> received) {
    make(moves::AllToAll<T>{in, sent, out, received});
  }
  /// A message for rank `to`.
  template <Element T>
  void send(std::span<const T> data, int to, int tag = 0) {
    make(moves::Send<T>{data, to, tag});
  }
  /// The next message of rank `from`.
  template <Element T>
  void receive(std::span<T> data, int from, int tag = 0) {
    make(moves::Receive<T>{data, from, tag});
  }
  /// Returns when all ranks have called.
  void barrier() { make(moves::Barrier{}); }

 protected:
  /// Whether arguments are checked; Self may hide it by its own.
  static constexpr bool checks_arguments() { return true; }

  /// The description of a call, whose arguments are checked.
  template <class Move>
  Call checked_call(const Move& move) {
    Self& self = static_cast<Self&>(*this);
    if (self.checks_arguments()) move.check(self.rank(), self.size());
    return move.call(self.rank());
  }

 private:
  template <class Move>
  void make(const Move& move) {
    Self& self = static_cast<Self&>(*this);
    static_assert(
        requires(const Call& call) { self.move(call, move); },
        "The communicator Self lacks `void move(const Call&, const Move&)`, or hides it from "
        "Collectives<Self>. Write it as comm/collectives.hpp says, for every type of "
        "shardwise::moves.");
    self.move(checked_call(move), move);
  }
};

}  // namespace shardwise
