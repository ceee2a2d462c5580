// Shards and shapes that are known while compiling.

#include "shardwise/core/partition.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/tensor.hpp"

using namespace shardwise;

// 10 units over 4 ranks: 3, 3, 2, 2.
static_assert(block_of({Axis::feature, 10}, {0, 4}) == Interval{0, 3});
static_assert(block_of({Axis::feature, 10}, {1, 4}) == Interval{3, 3});
static_assert(block_of({Axis::feature, 10}, {2, 4}) == Interval{6, 2});
static_assert(block_of({Axis::feature, 10}, {3, 4}) == Interval{8, 2});
// 2 channels over 4 ranks leave two ranks empty.
static_assert(block_of({Axis::channel, 2}, {1, 4}) == Interval{1, 1});
static_assert(block_of({Axis::channel, 2}, {2, 4}) == Interval{2, 0});
static_assert(block_of({Axis::channel, 2}, {3, 4}) == Interval{2, 0});
// Flattened channels are cut between planes and never within one.
static_assert(block_of({Axis::feature, 5, 49}, {1, 3}) == Interval{98, 98});
static_assert(detail::local_dim({Axis::feature, 5, 49}, {2, 3}) == Dim{Axis::feature, 1, 49});
static_assert(block_of({Axis::feature, 608}, {0, 1}) == Interval{0, 608});

constexpr Shape global{{Axis::batch, 64}, {Axis::feature, 608}};
static_assert(local_shape<Sharded<Axis::feature>>(global, {2, 3}) ==
              Shape{{Axis::batch, 64}, {Axis::feature, 202}});
static_assert(local_shape<Sharded<Axis::batch>>(global, {4, 5}) ==
              Shape{{Axis::batch, 12}, {Axis::feature, 608}});
static_assert(local_shape<Partial>(global, {2, 3}) == global);
// A batch that is not known yet stays so; the other axes are cut.
constexpr Shape open{{Axis::batch, dynamic}, {Axis::feature, 10}};
static_assert(local_shape<Sharded<Axis::batch>>(open, {1, 4}) == open);
static_assert(local_shape<Sharded<Axis::feature>>(open, {3, 4}) ==
              Shape{{Axis::batch, dynamic}, {Axis::feature, 2}});

using Known = Extents<Dim{Axis::batch, 32}, Dim{Axis::feature, 608}>;
using HalfKnown = Extents<Dim{Axis::batch, dynamic}, Dim{Axis::feature, 608}>;
static_assert(Known::is_static && !HalfKnown::is_static && !Extents<>::is_static);
static_assert(Known::admits({{Axis::batch, 32}, {Axis::feature, 608}}));
static_assert(!Known::admits({{Axis::batch, 31}, {Axis::feature, 608}}));
static_assert(!Known::admits({{Axis::feature, 608}, {Axis::batch, 32}}));     // another order
static_assert(!Known::admits({{Axis::batch, 32}, {Axis::channel, 608}}));     // another axis
static_assert(!Known::admits({{Axis::batch, 32}, {Axis::feature, 304, 2}}));  // another grain
static_assert(!Known::admits({{Axis::batch, 32}}));
static_assert(HalfKnown::admits({{Axis::batch, 7}, {Axis::feature, 608}}));
static_assert(!HalfKnown::admits({{Axis::batch, 7}, {Axis::feature, 607}}));
static_assert(Extents<>::admits(global) && Extents<>::admits(Shape{}));

// Only a tensor of static extents can be made without a shape.
static_assert(std::is_default_constructible_v<Tensor<float, Invariant, Known>>);
static_assert(!std::is_default_constructible_v<Tensor<float, Invariant, HalfKnown>>);
static_assert(!std::is_default_constructible_v<Tensor<float, Invariant>>);

// Views convert to const and to knowing less, and to nothing else.
template <class From, class To>
inline constexpr bool converts = std::is_convertible_v<From, To>;
static_assert(converts<View<float, Partial>, View<const float, Partial>>);
static_assert(converts<View<float, Partial, Known>, View<const float, Partial, Known>>);
static_assert(converts<View<float, Partial, Known>, View<const float, Partial>>);
static_assert(!converts<View<const float, Partial>, View<float, Partial>>);
static_assert(!converts<View<float, Partial>, View<float, Partial, Known>>);
static_assert(!converts<View<float, Partial>, View<float, Invariant>>);  // that is a redistribution
static_assert(!converts<View<float, Partial>, View<double, Partial>>);
static_assert(!converts<View<float, Sharded<Axis::batch>>, View<float, Sharded<Axis::feature>>>);
