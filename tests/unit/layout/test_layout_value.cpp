// Layouts as values: what each kind cuts, and which are the same.

#include <doctest/doctest.h>

#include "shardwise/core/shape.hpp"
#include "shardwise/layout/layout_value.hpp"
#include "shardwise/layout/window.hpp"

using namespace shardwise;
using Value = detail::LayoutValue;
using Kind = Value::Kind;

TEST_CASE("which layouts cut an axis, and which have halos") {
  for (const auto whole : {Kind::invariant, Kind::replicated, Kind::partial}) {
    CHECK_FALSE(Value{whole, Axis::batch}.cuts());
    CHECK_FALSE(Value{whole, Axis::batch}.cuts(Axis::batch));
    CHECK_FALSE(Value{whole}.has_halo());
  }
  for (const auto cut : {Kind::sharded, Kind::haloed, Kind::haloed_partial}) {
    CHECK(Value{cut, Axis::height}.cuts());
    CHECK(Value{cut, Axis::height}.cuts(Axis::height));
    CHECK_FALSE(Value{cut, Axis::height}.cuts(Axis::batch));
  }
  CHECK_FALSE(Value{Kind::sharded}.has_halo());
  CHECK(Value{Kind::haloed}.has_halo());
  CHECK(Value{Kind::haloed_partial}.has_halo());
}

TEST_CASE("layouts are the same by kind and axis, and halos by their windows too") {
  const Window three{.kernel = 3}, five{.kernel = 5};
  CHECK(Value{Kind::sharded, Axis::height, three} == Value{Kind::sharded, Axis::height, five});
  CHECK(Value{Kind::sharded, Axis::height} != Value{Kind::sharded, Axis::width});
  CHECK(Value{Kind::sharded, Axis::height} != Value{Kind::haloed, Axis::height});
  for (const auto haloed : {Kind::haloed, Kind::haloed_partial}) {
    CHECK(Value{haloed, Axis::height, three} == Value{haloed, Axis::height, three});
    CHECK(Value{haloed, Axis::height, three} != Value{haloed, Axis::height, five});
  }
}
