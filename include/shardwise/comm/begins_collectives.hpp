#pragma once
// An optional feature of communicators: collectives whose messages are under way while the rank
// computes.

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise {

namespace detail {

/// A collective that is under way, see `BeginsCollectives`.
template <class U>
concept CollectiveUnderWay = std::move_constructible<U> && requires(U& under_way) {
  under_way.progress();
  under_way.finish();
};

}  // namespace detail

/// A communicator with
///
///     begin_all_reduce(in, out, reduction = sum)
///     begin_reduce_scatter(in, out, counts, reduction = sum)
///     begin_all_gather(in, out, counts)
///
/// on spans of any `Element`. Each begins the collective of that name and returns an object for it,
/// which can be moved:
///
///     under_way.progress()   lets the collective go on as far as it can without a wait
///     under_way.finish()     waits until it is made, and throws what the collective would, or what
///                            one would that this rank has begun before. An error is thrown once,
///                            by the first call that waits for it
///     static constexpr bool goes_on_by_itself = true;
///                            in its type, if it needs no progress(), which then does nothing
///
/// One that does not go on by itself goes on when the rank calls progress() or finish(), or waits
/// in another call. Until finish() has returned, do not write to `in`, and do not read or write
/// `out`; `counts` may change. An object that is destroyed before waits, too, and its errors are
/// lost: that is for a rank that already throws one. Where the work of a rank is what it enqueues
/// on a stream, the collective follows the work before it, and the work behind finish() follows the
/// collective; the host does not wait.
///
/// It is a collective with the same rules and errors, the same bytes on the wire and the same bits,
/// and counts as one. Several may be under way. Another collective of the same group first waits
/// for them. All ranks of the group begin it: one that makes an all_reduce where others begin one
/// makes another call.
///
///     auto sum = ranks.begin_all_reduce(in, out);
///     for (Part& part : parts) {
///       part.compute();
///       sum.progress();
///     }
///     sum.finish();
///
/// valid: `MpiCommunicator`, `NcclCommunicator`
/// invalid: `ThreadCommunicator`, whose ranks add themselves
template <class C>
concept BeginsCollectives = Communicator<C> &&
    requires(C& c, std::span<const float> in, std::span<float> out,
             std::span<const std::size_t> counts) {
  { c.begin_all_reduce(in, out) } -> detail::CollectiveUnderWay;
  { c.begin_reduce_scatter(in, out, counts) } -> detail::CollectiveUnderWay;
  { c.begin_all_gather(in, out, counts) } -> detail::CollectiveUnderWay;
};

namespace detail {

/// A communicator whose collectives under way go on by themselves.
///
/// valid: `NcclCommunicator`      invalid: `MpiCommunicator`, which moves them in its calls
template <class C>
concept CollectivesGoOn = BeginsCollectives<C> && decltype(std::declval<C&>().begin_all_reduce(
    std::span<const float>(), std::span<float>()))::goes_on_by_itself;

}  // namespace detail

/// The operations of `Communicator` and of `BeginsCollectives` for `Self`, which derives from this.
/// Self has what `Collectives<Self>` says, and
///
///     template <class Move>
///     auto begin(const Call& call, const Move& m);
///
/// for the types of `shardwise::moves` of the operations that can be begun. It returns the object
/// for the collective, and copies the counts that `call` and `m` refer to. It may be private if
/// `BeginningCollectives<Self>` is a friend.
template <class Self>
class BeginningCollectives : public Collectives<Self> {
 public:
  /// Begins out = the ranks' `in`, reduced.
  template <Element T>
  [[nodiscard]] auto begin_all_reduce(detail::InputOf<T> in, std::span<T> out,
                                      Reduction reduction = Reduction::sum) {
    return begin_checked(moves::AllReduce<T>{in, out, reduction});
  }
  /// Begins out = the rank's block of the ranks' `in`, reduced.
  template <Element T>
  [[nodiscard]] auto begin_reduce_scatter(detail::InputOf<T> in, std::span<T> out,
                                          std::span<const std::size_t> counts,
                                          Reduction reduction = Reduction::sum) {
    return begin_checked(moves::ReduceScatter<T>{in, out, counts, reduction});
  }
  /// Begins out = the blocks of all ranks, in order.
  template <Element T>
  [[nodiscard]] auto begin_all_gather(detail::InputOf<T> in, std::span<T> out,
                                      std::span<const std::size_t> counts) {
    return begin_checked(moves::AllGather<T>{in, out, counts});
  }

 private:
  template <class Move>
  auto begin_checked(const Move& m) {
    return static_cast<Self&>(*this).begin(this->checked_call(m), m);
  }
};

}  // namespace shardwise
