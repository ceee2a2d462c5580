#pragma once
// Runs redistributions on memory of the caller.

#include <type_traits>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/redistribute/collective_moves.hpp"
#include "shardwise/redistribute/halo_moves.hpp"
#include "shardwise/redistribute/local_moves.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise {

namespace detail {

/// A communicator with one rank, known to the compiler; its redistributions do nothing.
template <class C>
concept AloneByType = Communicator<C> && requires {
  requires std::integral_constant<int, C::size()>::value == 1;
};

/// Whether R on C moves no element, so that its input can be its output.
template <class R, Communicator C>
inline constexpr bool moves_nothing = R::movement == Movement::none || AloneByType<C>;

/// Whether the collectives of C take the memory of B's tensors. Most communicators take memory of
/// the host; those with `takes_device_memory` take memory of a device.
/// valid: `reaches_tensors<ThreadCommunicator, Reference>`
template <Communicator C, class B>
inline constexpr bool reaches_tensors = AloneByType<C> || DeviceBackend<B> == TakesDeviceMemory<C>;

[[noreturn, gnu::cold]] void refuse_views(const LayoutValue& from, const LayoutValue& to,
                                          const Shape& in, Place in_place, const Shape& out,
                                          Place out_place, Place ranks);

template <Layout From, Layout To>
[[noreturn]] void refuse_reduction(Reduction reduction) {
  throw argument_error({"redistribute, ", layout_name<From>(), " -> ", layout_name<To>(), ": ",
                        name(reduction),
                        " was asked for, but only the movement of an all-reduce (Partial -> "
                        "Invariant or Replicated) takes another reduction than a sum; slice its "
                        "result"});
}

}  // namespace detail

/// The place of the calling rank.
template <Communicator C>
constexpr Place place_of(const C& ranks) {
  return {ranks.rank(), ranks.size()};
}

/// out = in, in layout To. A collective: every rank of `ranks` calls it, with the same shape. in
/// and out have the same global shape. They may be the same memory if no element moves, and for
/// `Partial -> Invariant` and `Partial -> Replicated`. `pool` lends memory for packing. in, out and
/// the pool's memory are those of `backend`, which makes local copies. `reduction` may differ from
/// a sum only for an all-reduce, for example the maximum of a softmax.
/// sends    what `operation` of `Redistribute<From, To>` says, all elements of the tensor
/// throws   shape_error, argument_error for views that do not fit; argument_error for another
///          reduction than a sum if it is not an all-reduce; the communicator's errors
template <class B, Communicator C, class T, Layout From, Layout To>
void redistribute([[maybe_unused]] B& backend, C& ranks, Pool& pool, const View<const T, From>& in,
                  const View<T, To>& out, Reduction reduction = Reduction::sum) {
  static_assert(!detail::MeshCommunicator<C>,
                "these ranks have axes, and the redistribution over them is in another header: "
                "include shardwise/redistribute/mesh.hpp.");
  static_assert(PlainLayout<From> && PlainLayout<To>,
                "From or To is a layout over a mesh, but these ranks have no axes. Give MeshRanks "
                "of this communicator, and include shardwise/redistribute/mesh.hpp.");
  using R = Redistribute<From, To>;
  if constexpr (detail::checks_locally<C>()) {
    if (!(in.global() == out.global()) || !(in.place() == place_of(ranks)) ||
        !(out.place() == place_of(ranks))) {
      detail::refuse_views(detail::layout_value<From>, detail::layout_value<To>, in.global(),
                           in.place(), out.global(), out.place(), place_of(ranks));
    }
  }
  if constexpr (R::movement != Movement::all_reduce && detail::checks_locally<C>()) {
    if (reduction != Reduction::sum) detail::refuse_reduction<From, To>(reduction);
  }
  if constexpr (detail::moves_nothing<R, C>) {
    detail::keep(backend, in, out);
  } else if constexpr (R::movement == Movement::keep_first) {
    detail::keep_first(backend, in, out);
  } else if constexpr (R::movement == Movement::slice) {
    detail::slice(backend, in, out);
  } else if constexpr (R::movement == Movement::pad) {
    detail::pad(backend, in, out);
  } else if constexpr (R::movement == Movement::all_gather) {
    detail::all_gather(backend, ranks, pool, in, out);
  } else if constexpr (R::movement == Movement::all_reduce) {
    ranks.all_reduce(in.span(), out.span(), reduction);
  } else if constexpr (R::movement == Movement::reduce_scatter) {
    detail::reduce_scatter(backend, ranks, pool, in, out);
  } else if constexpr (R::movement == Movement::all_to_all) {
    detail::all_to_all(backend, ranks, pool, in, out);
  } else if constexpr (R::movement == Movement::halo_exchange) {
    detail::halo_exchange(backend, ranks, pool, in, out);
  } else if constexpr (R::movement == Movement::halo_sum) {
    detail::halo_sum(backend, ranks, pool, in, out);
  } else {
    detail::pad(backend, in, out);
    ranks.all_reduce(std::span<const T>(out.span()), out.span());
  }
}

/// The same on memory of the host, without a backend.
template <Communicator C, class T, Layout From, Layout To>
void redistribute(C& ranks, Pool& pool, const View<const T, From>& in, const View<T, To>& out,
                  Reduction reduction = Reduction::sum) {
  detail::NoBackend none;
  redistribute(none, ranks, pool, in, out, reduction);
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void refuse_views(const LayoutValue& from, const LayoutValue& to, const Shape& in,
                                   Place in_place, const Shape& out, Place out_place, Place ranks) {
  if (!(in == out)) {
    throw shape_error({"rank ", ranks.rank, ", ", from, " -> ", to, ": the input is a tensor ", in,
                       " and the output ", out,
                       "; a redistribution changes the layout alone, so they must be equal"});
  }
  throw argument_error({"rank ", ranks.rank, ", ", from, " -> ", to,
                        ": the views were made for another rank or number of ranks (input ",
                        in_place.rank, " of ", in_place.size, ", output ", out_place.rank, " of ",
                        out_place.size, ") than the communicator's ", ranks.size, " ranks"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
