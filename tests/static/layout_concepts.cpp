// What is a layout, and what its gradient is laid out as.

#include <concepts>
#include <type_traits>

#include "shardwise/layout/layout.hpp"

using namespace shardwise;

static_assert(Layout<Invariant>);
static_assert(Layout<Replicated>);
static_assert(Layout<Partial>);
static_assert(Layout<Sharded<Axis::batch>>);
static_assert(Layout<Sharded<Axis::input>>);

static_assert(!Layout<int>);
static_assert(!Layout<void>);
static_assert(!Layout<Axis>);           // names an axis and does not say that it is split
static_assert(!Layout<const Partial>);  // layouts are named by value
static_assert(!Layout<Partial&>);
static_assert(!Layout<Partial*>);
struct AlmostInvariant : Invariant {};
static_assert(!Layout<AlmostInvariant>);  // the set is closed: a new layout brings its moves
struct LooksSharded {
  static constexpr Axis axis = Axis::batch;
};
static_assert(!Layout<LooksSharded>);
static_assert(!ShardedLayout<LooksSharded>);

static_assert(ShardedLayout<Sharded<Axis::height>>);
static_assert(!ShardedLayout<Invariant>);
static_assert(!ShardedLayout<Replicated>);
static_assert(!ShardedLayout<Partial>);
static_assert(Sharded<Axis::width>::axis == Axis::width);
static_assert(!std::same_as<Sharded<Axis::batch>, Sharded<Axis::feature>>);

static_assert(std::same_as<dual_t<Invariant>, Invariant>);
static_assert(std::same_as<dual_t<Replicated>, Partial>);
static_assert(std::same_as<dual_t<Partial>, Replicated>);
static_assert(std::same_as<dual_t<Sharded<Axis::channel>>, Sharded<Axis::channel>>);

// Pure types: they take no room and hold no sizes.
static_assert(std::is_empty_v<Invariant> && std::is_empty_v<Replicated>);
static_assert(std::is_empty_v<Partial> && std::is_empty_v<Sharded<Axis::output>>);
