// The table of redistributions, written out once by hand: what each pair does, and what its adjoint
// is. The library has one line for the adjoint; it is held against the table here.

#include <concepts>
#include <optional>

#include "shardwise/redistribute/redistribute.hpp"
#include "shardwise/testing/layouts.hpp"

using namespace shardwise;

namespace {

using A = Sharded<Axis::batch>;
using B = Sharded<Axis::feature>;

template <class From, class To, Movement Forward, class AdjointFrom, class AdjointTo,
          Movement Backward>
constexpr bool row() {
  static_assert(redistributable<From, To>);
  using R = Redistribute<From, To>;
  static_assert(std::same_as<typename R::from, From> && std::same_as<typename R::to, To>);
  static_assert(R::movement == Forward);
  static_assert(std::same_as<adjoint_t<R>, Redistribute<AdjointFrom, AdjointTo>>);
  static_assert(adjoint_t<R>::movement == Backward);
  return true;
}

using enum Movement;

// clang-format off
//                from        to          does            its adjoint: from, to, and what it does
static_assert(row<Invariant,  Invariant,  none,           Invariant,  Invariant,  none>());
static_assert(row<Invariant,  Replicated, none,           Partial,    Invariant,  all_reduce>());
static_assert(row<Invariant,  Partial,    keep_first,     Replicated, Invariant,  none>());
static_assert(row<Invariant,  A,          slice,          A,          Invariant,  all_gather>());
static_assert(row<Replicated, Invariant,  none,           Invariant,  Partial,    keep_first>());
static_assert(row<Replicated, Replicated, none,           Partial,    Partial,    none>());
static_assert(row<Replicated, A,          slice,          A,          Partial,    pad>());
static_assert(row<Partial,    Invariant,  all_reduce,     Invariant,  Replicated, none>());
static_assert(row<Partial,    Replicated, all_reduce,     Partial,    Replicated, all_reduce>());
static_assert(row<Partial,    Partial,    none,           Replicated, Replicated, none>());
static_assert(row<Partial,    A,          reduce_scatter, A,          Replicated, all_gather>());
static_assert(row<A,          Invariant,  all_gather,     Invariant,  A,          slice>());
static_assert(row<A,          Replicated, all_gather,     Partial,    A,          reduce_scatter>());
static_assert(row<A,          Partial,    pad,            Replicated, A,          slice>());
static_assert(row<A,          A,          none,           A,          A,          none>());
static_assert(row<A,          B,          all_to_all,     B,          A,          all_to_all>());
static_assert(row<B,          A,          all_to_all,     A,          B,          all_to_all>());
// clang-format on

// The one pair that is missing, and that asking does not break the program.
static_assert(!redistributable<Replicated, Partial>);
// Nothing else is: 36 pairs of six layouts but that one.
constexpr int pairs() {
  int count = 0;
  detail::oracle::for_each_pair([&]<class From, class To>() { ++count; });
  return count;
}
static_assert(detail::oracle::AllLayouts::size == 6 && pairs() == 35);

// What each movement calls.
static_assert(Redistribute<A, Invariant>::operation() == Operation::all_gather);
static_assert(Redistribute<Partial, Invariant>::operation() == Operation::all_reduce);
static_assert(Redistribute<Partial, A>::operation() == Operation::reduce_scatter);
static_assert(Redistribute<A, B>::operation() == Operation::all_to_all);
static_assert(Redistribute<Invariant, Replicated>::operation() == std::nullopt);
static_assert(Redistribute<Invariant, Partial>::operation() == std::nullopt);
static_assert(Redistribute<Replicated, A>::operation() == std::nullopt);
static_assert(Redistribute<A, Partial>::operation() == std::nullopt);

// Halos, of the axis that they are cut along.
template <Window W>
using Needed = Haloed<Axis::batch, W>;
template <Window W>
using Summands = HaloedPartial<Axis::batch, W>;
constexpr Window three{.kernel = 3, .before = 1, .after = 1};
// clang-format off
static_assert(row<A,          Needed<three>, halo_exchange, Summands<three>, A,         halo_sum>());
static_assert(row<Invariant,  Needed<three>, slice,         Summands<three>, Invariant, halo_all_reduce>());
static_assert(row<Replicated, Needed<three>, slice,         Summands<three>, Partial,   pad>());
// clang-format on
static_assert(!redistributable<B, Needed<three>> && !redistributable<Summands<three>, B>);
static_assert(Redistribute<A, Needed<three>>::operation() == Operation::halo_exchange);
static_assert(Redistribute<Summands<three>, A>::operation() == Operation::halo_sum);
static_assert(Redistribute<Summands<three>, Invariant>::operation() == Operation::all_reduce);

// A halo sends nothing where each rank has what its windows read.
template <Window W>
constexpr bool in_place(std::size_t units, int ranks) {
  const Shape shape{{Axis::feature, 2}, {Axis::batch, units}};
  using R = Redistribute<A, Needed<W>>;
  return detail::stays_in_place<R>(shape, ranks) &&
         detail::stays_in_place<adjoint_t<R>>(shape, ranks);
}
static_assert(in_place<three>(4, 1) && !in_place<three>(4, 2));
static_assert(!in_place<Window{.kernel = 2, .after = 1}>(4, 2));  // blocks of 2 begin as these of 3
static_assert(in_place<Window{.repeats = 2}>(4, 2) && !in_place<Window{.repeats = 2}>(4, 3));
static_assert(in_place<Window{}>(2, 4));  // also on ranks that have nothing
static_assert(!detail::stays_in_place<Redistribute<A, Invariant>>({{Axis::batch, 4}}, 1));

// Why there is none, by the layouts along the axes of a mesh.
using detail::Missing;
using detail::why_missing;
template <class L>
constexpr detail::LayoutValue as = detail::layout_value<L>;
static_assert(why_missing(as<Replicated>, as<Partial>) == Missing::summands);
static_assert(why_missing(as<B>, as<Needed<three>>) == Missing::halo);
static_assert(why_missing(as<Needed<three>>, as<A>) == Missing::halo);
static_assert(why_missing(as<A>, {{MeshAxis::data, as<A>}, {MeshAxis::tensor, as<A>}}) ==
              Missing::order);
static_assert(why_missing({{MeshAxis::data, as<A>}, {MeshAxis::tensor, as<Invariant>}},
                          {{MeshAxis::data, as<A>}, {MeshAxis::tensor, as<Needed<three>>}}) ==
              Missing::halo);
static_assert(why_missing({{MeshAxis::data, as<Replicated>}, {MeshAxis::tensor, as<A>}},
                          {{MeshAxis::data, as<Partial>}, {MeshAxis::tensor, as<Needed<three>>}}) ==
              Missing::summands);

// The laws of types, for every layout and every pair.
template <class From, class To>
constexpr bool laws_hold() {
  using R = Redistribute<From, To>;
  static_assert(std::same_as<dual_t<dual_t<From>>, From>);
  static_assert(Layout<dual_t<From>>);
  static_assert(redistributable<dual_t<To>, dual_t<From>>);  // whatever exists has an adjoint
  static_assert(std::same_as<adjoint_t<adjoint_t<R>>, R>);
  static_assert((R::movement == none) == !R::operation() || R::movement == keep_first ||
                R::movement == slice || R::movement == pad);
  return true;
}
constexpr bool every_pair() {
  bool all = true;
  detail::oracle::for_each_pair(
      [&]<class From, class To>() { all = all && laws_hold<From, To>(); });
  return all;
}
static_assert(every_pair());

}  // namespace
