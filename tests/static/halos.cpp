// Halos as types: duals, adjoints, what exists, and what is sent.

#include "shardwise/model/plan.hpp"

using namespace shardwise;

constexpr Window window{.kernel = 3, .stride = 2, .before = 1, .after = 1};
using Rows = Sharded<Axis::height>;
using Needed = Haloed<Axis::height, window>;
using Summands = HaloedPartial<Axis::height, window>;

static_assert(Layout<Needed> && Layout<Summands> && !ShardedLayout<Needed>);
static_assert(std::same_as<dual_t<Needed>, Summands> && std::same_as<dual_t<Summands>, Needed>);
static_assert(std::same_as<adjoint_t<Redistribute<Rows, Needed>>, Redistribute<Summands, Rows>>);
static_assert(std::same_as<adjoint_t<Redistribute<Invariant, Needed>>,  //
                           Redistribute<Summands, Invariant>>);
static_assert(std::same_as<adjoint_t<Redistribute<Replicated, Needed>>,  //
                           Redistribute<Summands, Partial>>);

// Only what halos are made of, and what their gradients become.
static_assert(redistributable<Rows, Needed> && redistributable<Summands, Rows>);
static_assert(!redistributable<Sharded<Axis::width>, Needed> && !redistributable<Partial, Needed>);
static_assert(!redistributable<Needed, Rows> && !redistributable<Needed, Invariant>);
static_assert(!redistributable<Rows, Summands> && !redistributable<Summands, Replicated>);
static_assert(!redistributable<Needed, Summands> && !redistributable<Summands, Needed>);

// What every rank holds in one place, and sends nothing to get.
static_assert(!Redistribute<Invariant, Needed>::operation());
static_assert(Redistribute<Summands, Invariant>::operation() == Operation::all_reduce);

// 29 rows over 4 ranks: the second needs one more row on each side, the third two behind its own.
constexpr Shape images{{Axis::batch, 2}, {Axis::height, 29}, {Axis::width, 5}};
static_assert(local_block<Needed>(images, {0, 4}) == Interval{0, 8});
static_assert(local_block<Needed>(images, {1, 4}) == Interval{7, 9});
static_assert(local_block<Needed>(images, {2, 4}) == Interval{15, 9});
static_assert(local_block<Needed>(images, {3, 4}) == Interval{23, 6});
static_assert(local_block<Needed>(images, {0, 1}) == Interval{0, 29});

constexpr Collective entry(auto redistribution) {
  CollectiveList list;
  detail::add_redistribution<decltype(redistribution)>(list, images, Dtype::float32, {},
                                                       Axis::batch);
  return list[0];
}
constexpr Collective there = entry(Redistribute<Rows, Needed>{});
static_assert(there.operation == Operation::halo_exchange && there.elements == 2 * 29 * 5);
static_assert(there.elements_passed_in(4) == 2 * 29 * 5);
static_assert(there.bytes_sent(4) == 4 * 2 * 5 * sizeof(float) && there.bytes_sent(1) == 0);

constexpr Collective back = entry(Redistribute<Summands, Rows>{});
static_assert(back.operation == Operation::halo_sum && back.elements == 2 * 29 * 5);
static_assert(back.elements_passed_in(4) == 2 * (8 + 9 + 9 + 6) * 5);
static_assert(back.bytes_sent(4) == there.bytes_sent(4));
