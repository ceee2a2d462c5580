// The shapes that laws are tested on are of each kind that they promise.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "shardwise/core/shape.hpp"
#include "shardwise/testing/shapes.hpp"

using namespace shardwise;

TEST_CASE("shapes for a number of ranks are of each kind, with each axis in each place") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    CAPTURE(ranks);
    const auto p = static_cast<std::size_t>(ranks);
    const std::vector<Shape> shapes = shapes_for(ranks);
    REQUIRE(shapes.size() == 25);
    const auto count = [&](auto is_so) { return std::ranges::count_if(shapes, is_so); };
    for (const Axis axis : {Axis::batch, Axis::sequence, Axis::feature})
      for (std::size_t place = 0; place < 3; ++place)
        CHECK(count([&](const Shape& s) { return s.rank() == 3 && s[place].axis == axis; }) == 8);
    const auto units = [](const Shape& s, Axis axis) { return s[s.find(axis)].units; };
    CHECK(count([&](const Shape& s) {  // even
            return units(s, Axis::batch) == p && units(s, Axis::sequence) == p &&
                   units(s, Axis::feature) == 2 * p;
          }) >= 3);
    CHECK(count([&](const Shape& s) { return units(s, Axis::batch) == p + 1; }) >= 3);
    CHECK(count([&](const Shape& s) { return units(s, Axis::batch) == 0; }) == 3);
    CHECK(count([&](const Shape& s) { return units(s, Axis::feature) == 0; }) == 3);
    CHECK(count([&](const Shape& s) {  // all have two, but the last one
            return units(s, Axis::sequence) == 2 * p - 1 && units(s, Axis::batch) == 1 &&
                   units(s, Axis::feature) == 1;
          }) == 3);
    CHECK(count([&](const Shape& s) { return s.rank() == 4; }) == 1);
  }
}
